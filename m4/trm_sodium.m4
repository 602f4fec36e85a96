# libsodium encrypts and signs files. OpenSSL's libcrypto beside it has AES.
AC_DEFUN([TRM_FIND_SODIUM], [
TRM_OPTIONAL([SODIUM], [libsodium], [sodium], [sodium.h], [crypto_aead_chacha20poly1305_ietf_encrypt_detached],
  [libsodium], [libsodium-dev])
TRM_OPTIONAL([LIBCRYPTO], [libcrypto], [crypto], [openssl/evp.h], [EVP_aes_256_gcm], [libcrypto], [libssl-dev])
])
