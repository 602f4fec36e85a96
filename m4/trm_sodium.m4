# libsodium encrypts and signs files.
AC_DEFUN([TRM_FIND_SODIUM], [
TRM_OPTIONAL([SODIUM], [libsodium], [sodium], [sodium.h], [crypto_aead_aes256gcm_is_available], [libsodium],
  [libsodium-dev])
])
