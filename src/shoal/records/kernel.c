/* placeholder until the kernel lands */
int shoal_kernel_version(void) { return 0; }
