"""What is handed to users: sdist and wheel, and every Python they run on."""
