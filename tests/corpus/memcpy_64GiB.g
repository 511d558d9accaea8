MemcpyHtoD,0x7fff00000000,68719476736
kernel-1.traceg.xz
