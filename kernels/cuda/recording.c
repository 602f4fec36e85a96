/* Recorded calls as a graph of CUDA, which is captured from the stream of the calls. */
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda.h"

struct trm_recording {
  cudaGraphExec_t graph;
  uint64_t replaced; /* the device's, when it was recorded */
};

bool cuda_refuses(const struct trm_device *device)
{
  struct cuda_state *state = cuda_state_of(device);

  state->refused |= state->recording;
  return state->recording;
}

/* Other threads may allocate meanwhile. Without the workspace cuBLAS would allocate. */
bool cuda_record_begin(struct trm_device *device)
{
  struct cuda_state *state = cuda_state_of(device);

  if (!state->workspace)
    return false;
  state->recording = cudaStreamBeginCapture(cuda_stream(device), cudaStreamCaptureModeThreadLocal) == cudaSuccess;
  state->refused = false;
  if (!state->recording)
    cudaGetLastError();
  return state->recording;
}

/* Returns the graph ready for launches, NULL: CUDA refuses. */
static cudaGraphExec_t recording_instantiate(cudaGraph_t graph)
{
  cudaGraphExec_t ready = NULL;

  if (cudaGraphInstantiateWithFlags(&ready, graph, 0) == cudaSuccess)
    return ready;
  cudaGetLastError();
  return NULL;
}

struct trm_recording *cuda_record_end(struct trm_device *device)
{
  struct cuda_state *state = cuda_state_of(device);
  struct trm_recording *recording = calloc(1, sizeof *recording);
  cudaGraph_t graph = NULL;

  if (cudaStreamEndCapture(cuda_stream(device), &graph) != cudaSuccess)
    cudaGetLastError();
  if (recording && graph && !state->refused)
    *recording = (struct trm_recording){.graph = recording_instantiate(graph), .replaced = state->replaced};
  if (graph)
    cudaGraphDestroy(graph);
  state->recording = false;
  if (recording && recording->graph)
    return recording;
  free(recording);
  return NULL;
}

bool cuda_replay(struct trm_device *device, struct trm_recording *recording)
{
  if (recording->replaced != cuda_state_of(device)->replaced)
    return false;
  cuda_check(device, (int)cudaGraphLaunch(recording->graph, cuda_stream(device)), "recorded calls");
  return true;
}

void cuda_recording_free(struct trm_device *device, struct trm_recording *recording)
{
  cuda_check(device, (int)cudaStreamSynchronize(cuda_stream(device)), "recorded calls");
  cuda_check(device, (int)cudaGraphExecDestroy(recording->graph), "recorded calls");
  free(recording);
}
