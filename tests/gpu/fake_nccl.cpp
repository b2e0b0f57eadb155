// A library for tests to open: it looks like NCCL of version FAKE_VERSION. With FAKE_LACKS it
// leaves a function out.
// NOLINTBEGIN(readability-identifier-naming): names of NCCL
extern "C" {
int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return 0;
}
#define FAKE(name) \
  int name() {     \
    return 3;      \
  }
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRank)
FAKE(ncclCommInitRankConfig)
FAKE(ncclCommSplit)
FAKE(ncclCommFinalize)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclCommGetAsyncError)
FAKE(ncclAllReduce)
FAKE(ncclReduceScatter)
FAKE(ncclAllGather)
FAKE(ncclBroadcast)
FAKE(ncclSend)
#ifndef FAKE_LACKS
FAKE(ncclRecv)
#endif
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
const char* ncclGetErrorString(int) {
  return "a fake error";
}
const char* ncclGetLastError(void*) {
  return "its detail";
}
}
// NOLINTEND(readability-identifier-naming)
