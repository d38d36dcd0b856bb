// Compression that Node 20 does not have, for clients that leave it to their users or to Node.
const { lz4Compress, lz4Decompress, snappyCompress, snappyDecompress } = require("@platformatic/wasm-utils");
const { ZstdCodec } = require("zstd-codec");

exports.codecs = () => new Promise((done) => ZstdCodec.run((library) => {
  const zstd = new library.Simple();
  done({
    snappy: { compress: snappyCompress, decompress: snappyDecompress },
    lz4: { compress: lz4Compress, decompress: lz4Decompress },
    zstd: { compress: (data) => zstd.compress(data), decompress: (data) => zstd.decompress(data) },
  });
}));
