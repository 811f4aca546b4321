// Launcher of wide.cuh.
#include "../../launch/launch_kernel.cuh"
#include "wide.cuh"

namespace {

using kernel = void (*)(wide::work);

template <int kColumns, bool kXTurned, bool kWTurned, bool kBf16> kernel of_cluster(int cluster) {
  if constexpr (kColumns >= 128) {
    if (cluster == 2)
      return wide::run<kColumns, kXTurned, kWTurned, kBf16, 2>;
  }
  return wide::run<kColumns, kXTurned, kWTurned, kBf16, 1>;
}

template <int kColumns, bool kXTurned, bool kWTurned> kernel of_type(gemm_type type, int cluster) {
  return type == GEMM_BF16 ? of_cluster<kColumns, kXTurned, kWTurned, true>(cluster)
                           : of_cluster<kColumns, kXTurned, kWTurned, false>(cluster);
}

template <int kColumns> kernel of_form(const tensors_product &p, int cluster) {
  if (p.x_turned)
    return p.w_turned ? of_type<kColumns, true, true>(p.type, cluster)
                      : of_type<kColumns, true, false>(p.type, cluster);
  return p.w_turned ? of_type<kColumns, false, true>(p.type, cluster)
                    : of_type<kColumns, false, false>(p.type, cluster);
}

} // namespace

extern "C" bool wide_config_valid(const struct tensors_product *product, const struct wide_config *config) {
  const bool columns = config->columns == 64 || config->columns == 128 || config->columns == 256;
  const int64_t m_tiles = tensors_padded_rows(product->m) / wide::rows;
  return columns && tensors_padded_columns(product->n) % config->columns == 0 &&
         (config->cluster == 1 || (config->cluster == 2 && config->columns >= 128 && m_tiles % 2 == 0));
}

extern "C" int wide_box_rows(const struct wide_config *config, bool turned, bool w) {
  return turned ? wide::step : w ? config->columns / config->cluster : wide::rows;
}

extern "C" cudaError_t wide_launch(cudaStream_t stream, const struct wide_config *config,
                                   const struct tensors_product *product, const CUtensorMap *x, const CUtensorMap *w) {
  const int64_t steps = (product->k + wide::step - 1) / wide::step;
  const int64_t m_tiles = tensors_padded_rows(product->m) / wide::rows;
  const int64_t n_tiles = (product->n + config->columns - 1) / config->columns;
  const int64_t blocks = m_tiles * n_tiles * product->slices;
  if (!wide_config_valid(product, config) || blocks > INT32_MAX || product->slices > steps)
    return cudaErrorInvalidConfiguration;
  wide::work work = {};
  work.pitch = tensors_padded_columns(product->n);
  work.slice = tensors_padded_rows(product->m) * work.pitch;
  work.partials = product->partials;
  work.m = static_cast<int>(product->m);
  work.steps = static_cast<int>(steps);
  work.slices = product->slices;
  work.m_tiles = static_cast<int>(m_tiles);
  work.n_tiles = static_cast<int>(n_tiles);
  work.dependent = product->dependent;
  work.x = *x;
  work.w = *w;
  const kernel run = config->columns == 256   ? of_form<256>(*product, config->cluster)
                     : config->columns == 128 ? of_form<128>(*product, config->cluster)
                                              : of_form<64>(*product, config->cluster);
  const size_t bytes = config->columns == 256   ? sizeof(wide::shared<256>)
                       : config->columns == 128 ? sizeof(wide::shared<128>)
                                                : sizeof(wide::shared<64>);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks));
  shape.block = dim3(wide::threads);
  shape.shared_bytes = bytes + 1024;
  shape.cluster = config->cluster > 1 ? dim3(static_cast<unsigned>(config->cluster), 1, 1) : dim3(0, 0, 0);
  shape.dependent = product->dependent;
  return launch_kernel(stream, shape, run, work);
}

static const load_early early(wide::run<256, false, false, false, 1>);
