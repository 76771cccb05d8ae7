// Many vectors: where they lie in memory, and the loop over them.
//
// Contiguous vectors of native floats are worked on where they are; any other layout or type passes through a buffer of
// one vector. The arithmetic sees contiguous data either way, so the bits do not depend on strides.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gradient.hpp"
#include "jobs.hpp"
#include "moments.hpp"
#include "project.hpp"

namespace hoyer::inline HOYER_ISA {

// The type in which vectors of element type E are computed.
template <class E> struct ComputeType { using Type = E; };
template <> struct ComputeType<_Float16> { using Type = float; };
template <class E> using Compute = typename ComputeType<E>::Type;

template <class E> constexpr double epsilon_of() {
    return sizeof(E) == 2 ? 0x1p-10 : static_cast<double>(std::numeric_limits<Compute<E>>::epsilon());
}

// One vector at a time as contiguous data of the compute type.
template <class E> class Reader {
public:
    explicit Reader(const Batch& batch) : batch_(batch) {
        if (!direct()) buffer_.resize(batch.length());
    }
    const Compute<E>* read(std::size_t index) {
        if constexpr (std::is_same_v<E, Compute<E>>)
            if (direct()) return reinterpret_cast<const E*>(batch_.row(index));
        batch_.gather<E>(index, buffer_.data());
        return buffer_.data();
    }
    // The buffer, if it can take the result as well.
    E* shared() {
        if constexpr (std::is_same_v<E, Compute<E>>) return direct() ? nullptr : buffer_.data();
        else return nullptr;
    }

private:
    bool direct() const { return std::is_same_v<E, Compute<E>> && batch_.direct(); }
    const Batch& batch_;
    std::vector<Compute<E>> buffer_;
};

// One vector at a time as contiguous room for the result: in place, or in a buffer, which may be the reader's.
template <class E> class Writer {
public:
    explicit Writer(const Batch& batch, E* shared = nullptr) : batch_(batch) {
        if (batch.direct()) return;
        if (!shared) buffer_.resize(batch.length());
        room_ = shared ? shared : buffer_.data();
    }
    E* room(std::size_t index) { return room_ ? room_ : reinterpret_cast<E*>(batch_.row(index)); }
    void finish(std::size_t index) {
        if (room_) batch_.scatter<E>(index, room_);
    }

private:
    const Batch& batch_;
    std::vector<E> buffer_;
    E* room_ = nullptr;
};

template <class T> Record record_of(const Solution<T>& s) {
    return {s.shift, s.scale, s.support_size, s.evaluations, s.unique ? 1.0 : 0.0, s.l1, s.l2,
            static_cast<double>(s.kept)};
}

// The caller may stop a long loop: it is asked after every few million entries.
class Patience {
public:
    explicit Patience(bool (*go_on)()) : go_on_(go_on) {}
    bool spend(std::size_t entries) {
        spent_ += entries;
        if (spent_ < (std::size_t{1} << 22)) return true;
        spent_ = 0;
        return go_on_();
    }

private:
    bool (*go_on_)();
    std::size_t spent_ = 0;
};

// Projects every vector; returns the number of the first one with NaN or infinity (nothing is written from there on; with
// all_first nothing at all), `interrupted`, or `all_good`.
template <class E, bool Signed> std::int64_t project_rows(const Job& job, bool (*go_on)()) {
    using T = Compute<E>;
    const std::size_t rows = job.x.rows(), n = job.x.length();
    Reader<E> reader(job.x);
    Writer<E> writer(job.out, reader.shared());
    Patience patience(go_on);
    Request request = job.request;
    request.eps = epsilon_of<E>();
    // Half types promise correct rounding, and are in D to much less than their eps after one projection.
    request.zero_slack = (sizeof(E) == 2 ? 0.5 : 4) * request.eps;
    // A single vector is surveyed before it is written anyway.
    if (job.check == Check::all_first && rows > 1) {
        for (std::size_t i = 0; i < rows; ++i) {
            if (!survey<Signed>(reader.read(i), n).finite) return static_cast<std::int64_t>(i);
            if (!patience.spend(n)) return interrupted;
        }
    }
    for (std::size_t i = 0; i < rows; ++i) {
        const T* x = reader.read(i);
        const Target target(static_cast<double>(n), job.ratio[i], {job.room[i], job.room_low[i]});
        const Solution<T> s = Projector<Signed, T>(x, n, target, job.l2[i], request).solve();
        if (job.check != Check::none && !s.finite) return static_cast<std::int64_t>(i);
        if (job.records) job.records[i] = record_of(s);
        write<Signed>(x, writer.room(i), n, s);
        writer.finish(i);
        if (!patience.spend(n)) return interrupted;
    }
    return all_good;
}

template <class E> std::int64_t gradient_rows(const GradientJob& job, bool (*go_on)()) {
    using T = Compute<E>;
    const std::size_t rows = job.value.rows(), n = job.value.length();
    Reader<E> value(job.value), y(job.y), x(job.x);
    Writer<E> out(job.out), second(job.second);
    std::vector<T> z(sizeof(E) == sizeof(T) ? 0 : n), z2(sizeof(E) == sizeof(T) ? 0 : n);
    Patience patience(go_on);
    for (std::size_t i = 0; i < rows; ++i) {
        const Record& record = job.records[i];
        const Linearization at{record.scale, record.l1, record.l2, static_cast<Kept>(static_cast<int>(record.kept)),
                               job.norm,     job.mode,  job.nonnegative};
        const auto into = [&](Writer<E>& writer, std::vector<T>& wide) {
            if constexpr (std::is_same_v<E, T>) return writer.room(i);
            else return wide.data();
        };
        const auto narrow = [&](Writer<E>& writer, const std::vector<T>& wide) {
            if constexpr (!std::is_same_v<E, T>) std::copy(wide.begin(), wide.end(), writer.room(i));
            writer.finish(i);
        };
        const T* p = value.read(i);
        if (job.by_target) {
            target_gradient(p, into(out, z), into(second, z2), n, at);
            narrow(second, z2);
        } else {
            const T* reference = job.norm == NormRule::keep ? x.read(i) : p;
            gradient_product(p, y.read(i), reference, into(out, z), n, at);
        }
        narrow(out, z);
        if (!patience.spend(n)) return interrupted;
    }
    return all_good;
}

// sigma(x) of every vector, NaN where it has none.
template <class E> std::int64_t sparseness_rows(const Batch& batch, double* out, bool (*go_on)()) {
    const double root = std::sqrt(static_cast<double>(batch.length()));
    Reader<E> reader(batch);
    Patience patience(go_on);
    for (std::size_t i = 0; i < batch.rows(); ++i) {
        const Norms size = norms<false>(reader.read(i), batch.length());
        const double ratio = size.sum / size.l2();
        const double sigma = (root - ratio) / (root - 1);
        // Rounding must not push sigma out of [0, 1]; NaN passes through.
        out[i] = sigma < 0 ? 0 : (sigma > 1 ? 1 : sigma);
        if (!patience.spend(batch.length())) return interrupted;
    }
    return all_good;
}

// Calls f.operator()<E>() for the element type at hand.
template <class F> std::int64_t with_element(Element element, F&& f) {
    switch (element) {
        case Element::float16: return f.template operator()<_Float16>();
        case Element::float32: return f.template operator()<float>();
        case Element::float64: return f.template operator()<double>();
    }
    return all_good;
}

}  // namespace hoyer::inline HOYER_ISA
