// What the module tells Python about the functions that XLA calls.
#pragma once

#include <nanobind/nanobind.h>

#include "jobs.hpp"

namespace hoyer::xla {

// Adds XLA_HANDLERS, by name as jax.ffi takes them, and XLA_PLACES: where switches, the rule and the solver stand in
// the number `asked` that calls carry.
void add_handlers(nanobind::module_& m, const Core* core);

// Those for vectors of which devices have parts.
void add_part_handlers(nanobind::dict& handlers);

}  // namespace hoyer::xla
