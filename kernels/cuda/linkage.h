/* For headers of C that launchers, which are C++, include. What they call of each other stands between the first two.
 */
#pragma once

#ifdef __cplusplus
#define C_LINKAGE_BEGIN extern "C" {
#define C_LINKAGE_END }
#define CPP_CONSTEXPR constexpr
#else
#define C_LINKAGE_BEGIN
#define C_LINKAGE_END
#define CPP_CONSTEXPR
#endif
