// Many vectors: where they lie in memory, and the loop over them.
//
// Contiguous vectors of native floats are worked on where they are; any other layout or type passes through a buffer of
// one vector. The arithmetic sees contiguous data either way, so the bits do not depend on strides.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gradient.hpp"
#include "jobs.hpp"
#include "lanes.hpp"
#include "moments.hpp"
#include "pool.hpp"
#include "project.hpp"

namespace hoyer::inline HOYER_ISA {

// The type in which vectors of element type E are computed.
template <class E> struct ComputeType { using Type = E; };
template <> struct ComputeType<Half> { using Type = float; };
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

// Vectors in tasks of a few ten thousand entries, shared by the threads; one thread does for little work.
//
// The caller is asked now and then whether to go on (Python's signals reach its thread alone). A task returns false to
// stop; which vector was the first to fail does not depend on the order of the tasks.
class RowTasks {
public:
    RowTasks(std::size_t rows, std::size_t length, bool (*go_on)()) : rows_(rows), go_on_(go_on), length_(length) {
        constexpr std::size_t entries = std::size_t{1} << 15;
        per_task_ = std::max<std::size_t>(1, entries / std::max<std::size_t>(1, length));
        // Whole groups of lanes.
        if (per_task_ > 16) per_task_ -= per_task_ % 16;
        tasks_ = (rows + per_task_ - 1) / per_task_;
    }

    // Calls make(), once per task, and what it returns for every vector of the task: f(row), false to stop there.
    template <class Make> std::int64_t run(Make make) {
        auto work = [&](std::size_t task, bool on_caller) {
            const std::size_t begin = task * per_task_, end = std::min(rows_, begin + per_task_);
            // Tasks before a failure must still look for an earlier one.
            if (stopped_.load(std::memory_order_relaxed) || begin > first_bad_.load(std::memory_order_relaxed)) return;
            try {
                auto f = make();
                for (std::size_t row = begin; row < end; ++row) {
                    if (!f(row)) return fail(row);
                    if (on_caller && !spend()) return stopped_.store(true, std::memory_order_relaxed);
                }
            } catch (...) {
                // Out of memory: the caller is told, not the thread it happened on.
                if (!failed_.exchange(true)) error_ = std::current_exception();
                stopped_.store(true, std::memory_order_relaxed);
            }
        };
        for_each_task(tasks_, work);
        if (error_) std::rethrow_exception(error_);
        if (first_bad_.load() != none) return static_cast<std::int64_t>(first_bad_.load());
        return stopped_.load() ? interrupted : all_good;
    }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    void fail(std::size_t row) {
        std::size_t known = first_bad_.load();
        while (row < known && !first_bad_.compare_exchange_weak(known, row)) {}
    }
    bool spend() {
        spent_ += length_;
        if (spent_ < (std::size_t{1} << 22)) return true;
        spent_ = 0;
        return go_on_();
    }

    std::size_t rows_, per_task_ = 1, tasks_ = 0;
    bool (*go_on_)();
    std::size_t length_, spent_ = 0;
    std::atomic<std::size_t> first_bad_{none};
    std::atomic<bool> stopped_{false}, failed_{false};
    std::exception_ptr error_;
};

// What is asked of vectors of type E.
template <class E> Request request_for(const Job& job) {
    Request request = job.request;
    request.eps = epsilon_of<E>();
    // Half types promise correct rounding, and are in D to much less than their eps after one projection.
    request.zero_slack = (sizeof(E) == 2 ? 0.5 : 4) * request.eps;
    return request;
}

// The solutions of one vector after the other; short ones are looked at in groups, before any of the group is written.
template <class E, bool Signed> class RowSolver {
    using T = Compute<E>;
    using Group = LaneGroup<Signed, T>;

public:
    RowSolver(const Job& job, const Request& request)
        : job_(job), request_(request), n_(job.x.length()), reader_(job.x) {
        const bool ordinary = request.solver == Solver::automatic && !request.only_increase;
        if (ordinary && job.x.rows() >= Group::width && n_ <= std::min(Group::longest, request.sampling.longest_lane))
            group_.emplace(n_);
    }

    const T* read(std::size_t row) { return reader_.read(row); }
    E* shared() { return reader_.shared(); }

    Solution<T> solve(std::size_t row, const T*& x) {
        const std::size_t lane = row % Group::width, first = row - lane;
        const bool in_group = group_ && first + Group::width <= job_.x.rows();
        if (in_group && lane == 0) look_at_group(first);
        x = reader_.read(row);
        const Target target = target_of(row);
        Projector<Signed, T> projector(x, n_, target, job_.l2[row], request_);
        if (in_group) {
            projector.known = &group_->support[lane];
            projector.reads = group_->reads[lane];
        }
        const Solution<T> s = projector.solve();
        if (job_.records) job_.records[row] = record_of(s);
        return s;
    }

private:
    Target target_of(std::size_t row) const {
        return {static_cast<double>(n_), job_.ratio[row], {job_.room[row], job_.room_low[row]}};
    }
    void look_at_group(std::size_t first) {
        for (std::size_t lane = 0; lane < Group::width; ++lane) group_->put(lane, reader_.read(first + lane));
        look(first, std::make_index_sequence<Group::width>());
    }
    template <std::size_t... Lane> void look(std::size_t first, std::index_sequence<Lane...>) {
        const Target targets[] = {target_of(first + Lane)...};
        group_->solve(targets);
    }

    const Job& job_;
    const Request& request_;
    std::size_t n_;
    Reader<E> reader_;
    std::optional<Group> group_;
};

// Projects every vector; returns the number of the first one with NaN or infinity (with all_first nothing has been
// written then), `interrupted`, or `all_good`.
template <class E, bool Signed> std::int64_t project_rows(const Job& job, bool (*go_on)()) {
    using T = Compute<E>;
    const std::size_t rows = job.x.rows(), n = job.x.length();
    const Request request = request_for<E>(job);
    // A single vector is read before it is written anyway.
    if (job.check == Check::all_first && rows > 1) {
        const std::int64_t bad = RowTasks(rows, n, go_on).run([&] {
            return [reader = Reader<E>(job.x), n](std::size_t i) mutable { return all_finite(reader.read(i), n); };
        });
        if (bad != all_good) return bad;
    }
    return RowTasks(rows, n, go_on).run([&] {
        struct Worker {
            const Job& job;
            const Request& request;
            RowSolver<E, Signed> solver{job, request};
            Writer<E> writer{job.out, solver.shared()};

            bool operator()(std::size_t i) {
                const T* x = nullptr;
                const Solution<T> s = solver.solve(i, x);
                if (job.check != Check::none && !s.finite) return false;
                write<Signed>(x, writer.room(i), job.x.length(), s);
                writer.finish(i);
                return true;
            }
        };
        return Worker{job, request};
    });
}

// Hands the nonzero entries of a projection to sink(position, value), ascending.
template <class Out, bool Signed, class T, class Sink>
void for_each_nonzero(const T* x, std::size_t n, const Solution<T>& s, Sink sink) {
    if (s.entries.positions) {
        fetch(x, s.entries);
        return for_each_entry<Signed, Out>(s.entries, s, sink);
    }
    Out values[block_size];
    Solution<T> rest = s;
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t size = std::min(block_size, n - begin);
        write_part<Signed>(x + begin, values, size, rest);
        // The first of tied entries is the first in the vector, not in the block.
        if (s.shape == Shape::tied && std::any_of(values, values + size, [](Out v) { return v != Out(0); }))
            rest.first = s.rest;
        for (std::size_t i = 0; i < size; ++i)
            if (values[i] != Out(0)) sink(static_cast<std::int64_t>(begin + i), values[i]);
    }
}

// Like project_rows, but keeps the nonzero entries only: nothing of the size of x is written.
template <class E, bool Signed>
std::int64_t project_sparse_rows(const Job& job, SparseResult& result, bool (*go_on)()) {
    using T = Compute<E>;
    const std::size_t rows = job.x.rows(), n = job.x.length();
    const Request request = request_for<E>(job);
    // Every vector's entries apart, since threads find them in any order.
    std::vector<std::vector<std::int64_t>> indices(rows);
    std::vector<std::vector<E>> values(rows);
    const std::int64_t outcome = RowTasks(rows, n, go_on).run([&] {
        return [&, solver = RowSolver<E, Signed>(job, request)](std::size_t i) mutable {
            const T* x = nullptr;
            const Solution<T> s = solver.solve(i, x);
            if (job.check != Check::none && !s.finite) return false;
            const std::size_t size = std::min(n, static_cast<std::size_t>(s.support_size));
            indices[i].reserve(size);
            values[i].reserve(size);
            for_each_nonzero<E, Signed>(x, n, s, [&](std::int64_t position, E value) {
                indices[i].push_back(position);
                values[i].push_back(value);
            });
            return true;
        };
    });
    if (outcome != all_good) return outcome;
    result.starts.assign(1, 0);
    for (const auto& row : indices) result.starts.push_back(result.starts.back() + static_cast<std::int64_t>(row.size()));
    const auto total = static_cast<std::size_t>(result.starts.back());
    result.indices.reserve(total);
    result.values.reserve(total * sizeof(E));
    for (std::size_t i = 0; i < rows; ++i) {
        result.indices.insert(result.indices.end(), indices[i].begin(), indices[i].end());
        const char* bytes = reinterpret_cast<const char*>(values[i].data());
        result.values.insert(result.values.end(), bytes, bytes + values[i].size() * sizeof(E));
        // What was handed over is not held twice.
        std::vector<std::int64_t>().swap(indices[i]);
        std::vector<E>().swap(values[i]);
    }
    return all_good;
}

template <class E> std::int64_t gradient_rows(const GradientJob& job, bool (*go_on)()) {
    using T = Compute<E>;
    struct Worker {
        const GradientJob& job;
        std::size_t n = job.value.length();
        Reader<E> value{job.value}, y{job.y}, x{job.x};
        Writer<E> out{job.out}, second{job.second};
        // Half types are computed in a wider one and narrowed.
        std::vector<T> wide_out = std::vector<T>(std::is_same_v<E, T> ? 0 : n);
        std::vector<T> wide_second = std::vector<T>(std::is_same_v<E, T> ? 0 : n);

        T* into(Writer<E>& writer, std::vector<T>& wide, std::size_t i) {
            if constexpr (std::is_same_v<E, T>) return writer.room(i);
            else return wide.data();
        }
        void finish(Writer<E>& writer, const std::vector<T>& wide, std::size_t i) {
            if constexpr (!std::is_same_v<E, T>) std::copy(wide.begin(), wide.end(), writer.room(i));
            writer.finish(i);
        }
        bool operator()(std::size_t i) {
            const Record& record = job.records[i];
            const Linearization at{record.scale, record.l1, record.l2, static_cast<Kept>(static_cast<int>(record.kept)),
                                   job.norm,     job.mode,  job.nonnegative};
            const T* p = value.read(i);
            if (job.by_target) {
                target_gradient(p, into(out, wide_out, i), into(second, wide_second, i), n, at);
                finish(second, wide_second, i);
            } else {
                const T* reference = job.norm == NormRule::keep ? x.read(i) : p;
                gradient_product(p, y.read(i), reference, into(out, wide_out, i), n, at);
            }
            finish(out, wide_out, i);
            return true;
        }
    };
    return RowTasks(job.value.rows(), job.value.length(), go_on).run([&] { return Worker{job}; });
}

// sigma(x) of every vector, NaN where it has none.
template <class E> std::int64_t sparseness_rows(const Batch& batch, double* out, bool (*go_on)()) {
    const std::size_t n = batch.length();
    return RowTasks(batch.rows(), n, go_on).run([&] {
        return [reader = Reader<E>(batch), out, n](std::size_t i) mutable {
            const double root = std::sqrt(static_cast<double>(n));
            const Norms size = norms<false>(reader.read(i), n);
            const double sigma = (root - size.sum / size.l2()) / (root - 1);
            // Rounding must not push sigma out of [0, 1]; NaN passes through.
            out[i] = sigma < 0 ? 0 : (sigma > 1 ? 1 : sigma);
            return true;
        };
    });
}

// Calls f.operator()<E>() for the element type at hand.
template <class F> std::int64_t with_element(Element element, F&& f) {
    switch (element) {
        case Element::float16: return f.template operator()<Half>();
        case Element::float32: return f.template operator()<float>();
        case Element::float64: return f.template operator()<double>();
    }
    return all_good;
}

}  // namespace hoyer::inline HOYER_ISA
