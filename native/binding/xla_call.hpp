// What all functions that XLA calls have in common: buffers in the core's terms, and the way in from XLA.
#pragma once

#include <cfenv>
#include <exception>
#include <new>
#include <optional>

#include "binding/xla.hpp"
#include "jobs.hpp"
#include "run/machine.hpp"

namespace hoyer::xla {

// The core that handlers call.
inline const Core* chosen = nullptr;

// Nobody on XLA's threads waits for Python's signals.
inline bool go_on() { return true; }

inline std::optional<Element> element_of(Type type) {
    switch (type) {
        case Type::f16:
            return Element::float16;
        case Type::f32:
            return Element::float32;
        case Type::f64:
            return Element::float64;
        case Type::bf16:
            return Element::bfloat16;
        default:
            return std::nullopt;
    }
}

// XLA's buffers are contiguous: all axes but the last number the vectors.
inline Batch batch_of(const Buffer& buffer, std::size_t itemsize) {
    return Batch::contiguous(buffer.data, buffer.count(1), buffer.last(), itemsize);
}

inline bool same_shape(const Buffer& a, const Buffer& b) { return a.count(1) == b.count(1) && a.last() == b.last(); }

// Asks for large pages under a long result, as NumPy does for its arrays and the binding for those of Python. XLA
// takes such memory from the system's allocator, which gives it back to the system and asks for it again every few
// calls: then every page is fresh, and to get 4096 of them takes longer than to project what they hold.
inline void expect_writes(const Buffer& buffer, std::size_t itemsize) {
    constexpr std::size_t large = std::size_t{1} << 22;
    const std::size_t bytes = buffer.count() * itemsize;
    if (bytes >= large) use_large_pages(buffer.data, bytes);
}

// XLA flushes subnormal numbers to zero on its threads. The core does not, and its own threads take after whoever
// starts them.
class OrdinaryFloats {
public:
    OrdinaryFloats() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~OrdinaryFloats() { std::fesetenv(&before_); }
    OrdinaryFloats(const OrdinaryFloats&) = delete;

private:
    std::fenv_t before_;
};

// What XLA calls: no exception may reach it.
template <Error* (*run)(const CallFrame&)> Error* handler(CallFrame* frame) noexcept {
    if (frame->asks_for_version() || frame->stage != Stage::execute) return nullptr;
    const OrdinaryFloats floats;
    try {
        return run(*frame);
    } catch (const std::bad_alloc&) {
        return frame->error("hoyer: out of memory", ErrorCode::resource_exhausted);
    } catch (const std::exception& error) {
        return frame->error(error.what(), ErrorCode::internal);
    }
}

}  // namespace hoyer::xla
