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

// How many vectors that are not contiguous are copied together: those side by side share their cache lines. Beyond a
// megabyte it is one.
template <class E> std::size_t tile_size(std::size_t length) {
    constexpr std::size_t most = width<Compute<E>>, bytes = std::size_t{1} << 20;
    return length * most * sizeof(Compute<E>) <= bytes ? most : 1;
}

// Calls block(i, row pointers, count) for all entries of `width` vectors side by side: squares, then single entries.
template <class T, class Square, class Rest> void for_each_square(std::size_t n, Square square, Rest rest) {
    std::size_t i = 0;
    for (; i + width<T> <= n; i += width<T>) square(i);
    for (; i < n; ++i) rest(i);
}

// Vectors as contiguous data of the compute type, a tile at a time.
template <class E> class Reader {
    using T = Compute<E>;

public:
    explicit Reader(const Batch& batch)
        : batch_(batch), slots_(tile_size<E>(batch.length())), buffer_(direct() ? 0 : slots_ * batch.length()) {}

    const T* read(std::size_t index) {
        if constexpr (std::is_same_v<E, T>)
            if (direct()) return reinterpret_cast<const E*>(batch_.row(index));
        if (index - first_ >= have_) fetch(index - index % slots_);
        return buffer_.data() + (index - first_) * batch_.length();
    }
    // The buffer, if it can take the results as well.
    E* shared() {
        if constexpr (std::is_same_v<E, T>) return direct() ? nullptr : buffer_.data();
        else return nullptr;
    }

private:
    bool direct() const { return std::is_same_v<E, T> && batch_.direct(); }

    void fetch(std::size_t first) {
        const std::size_t n = batch_.length();
        first_ = first;
        have_ = std::min(slots_, batch_.rows() - first);
        if constexpr (std::is_same_v<E, T>) {
            if (have_ == width<T> && batch_.adjacent(first, have_, sizeof(E))) return fetch_square(batch_.row(first));
        }
        for (std::size_t slot = 0; slot < have_; ++slot) batch_.gather<E>(first + slot, buffer_.data() + slot * n);
    }
    void fetch_square(const char* from) {
        const std::size_t n = batch_.length();
        const std::int64_t stride = batch_.entry_stride();
        T* const to = buffer_.data();
        const auto at = [&](std::size_t i) { return reinterpret_cast<const T*>(from + static_cast<std::int64_t>(i) * stride); };
        for_each_square<T>(
            n,
            [&](std::size_t i) {
                Vec<T> rows[width<T>];
                for (std::size_t k = 0; k < width<T>; ++k) rows[k] = load(at(i + k));
                transpose(rows);
                for (std::size_t k = 0; k < width<T>; ++k) store(to + k * n + i, rows[k]);
            },
            [&](std::size_t i) {
                for (std::size_t k = 0; k < width<T>; ++k) to[k * n + i] = at(i)[k];
            });
    }

    const Batch& batch_;
    std::size_t slots_, first_ = 0, have_ = 0;
    std::vector<T> buffer_;
};

// Contiguous room for results, in ascending order: in place, or a tile at a time in a buffer, which may be the reader's.
template <class E> class Writer {
public:
    explicit Writer(const Batch& batch, E* shared = nullptr) : batch_(batch), slots_(tile_size<E>(batch.length())) {
        if (batch.direct()) return;
        if (!shared) buffer_.resize(slots_ * batch.length());
        room_ = shared ? shared : buffer_.data();
    }
    Writer(const Writer&) = delete;
    ~Writer() { flush(); }

    E* room(std::size_t index) {
        return room_ ? room_ + index % slots_ * batch_.length() : reinterpret_cast<E*>(batch_.row(index));
    }
    void finish(std::size_t index) {
        if (!room_) return;
        if (done_ == 0) first_ = index;
        ++done_;
        if (index % slots_ + 1 == slots_) flush();
    }

private:
    void flush() {
        const std::size_t n = batch_.length(), done = std::exchange(done_, 0);
        if (done == 0) return;
        if constexpr (std::is_same_v<E, Compute<E>>) {
            if (done == width<E> && batch_.adjacent(first_, done, sizeof(E))) return flush_square(batch_.row(first_));
        }
        for (std::size_t i = 0; i < done; ++i) batch_.scatter<E>(first_ + i, room_ + (first_ + i) % slots_ * n);
    }
    void flush_square(char* to) {
        const std::size_t n = batch_.length();
        const std::int64_t stride = batch_.entry_stride();
        const auto at = [&](std::size_t i) { return reinterpret_cast<E*>(to + static_cast<std::int64_t>(i) * stride); };
        for_each_square<E>(
            n,
            [&](std::size_t i) {
                Vec<E> rows[width<E>];
                for (std::size_t k = 0; k < width<E>; ++k) rows[k] = load(room_ + k * n + i);
                transpose(rows);
                for (std::size_t k = 0; k < width<E>; ++k) store(at(i + k), rows[k]);
            },
            [&](std::size_t i) {
                for (std::size_t k = 0; k < width<E>; ++k) at(i)[k] = room_[k * n + i];
            });
    }

    const Batch& batch_;
    std::size_t slots_, first_ = 0, done_ = 0;
    std::vector<E> buffer_;
    E* room_ = nullptr;
};

template <class T> Record record_of(const Solution<T>& s) {
    return {s.shift, s.scale, s.support_size, s.evaluations, s.unique ? 1.0 : 0.0, s.l1, s.l2,
            static_cast<double>(s.kept)};
}

// Vectors in tasks of a few ten thousand entries, shared by the threads; one thread does for little work.
//
// The caller is asked now and then whether to go on (Python's signals reach its thread alone). Which vector was the first
// to fail does not depend on the order of the tasks.
class RowTasks {
public:
    RowTasks(std::size_t rows, std::size_t length, bool (*go_on)()) : rows_(rows), go_on_(go_on), length_(length) {
        constexpr std::size_t entries = std::size_t{1} << 15;
        per_task_ = std::max<std::size_t>(1, entries / std::max<std::size_t>(1, length));
        // Whole groups of vectors, unless those were too much for one task.
        constexpr std::size_t group = 64 / sizeof(float);
        if (per_task_ >= group || length * group <= 8 * entries) per_task_ = std::max(group, per_task_ / group * group);
        tasks_ = (rows + per_task_ - 1) / per_task_;
    }

    // Calls make(), once per task, and what it returns for the vectors of the task: f(row, end) does some of them, from
    // `row` on, and returns how many; 0 if vector `row` is bad.
    template <class Make> std::int64_t run(Make make) {
        auto work = [&](std::size_t task, bool on_caller) {
            const std::size_t begin = task * per_task_, end = std::min(rows_, begin + per_task_);
            // Tasks before a failure must still look for an earlier one.
            if (stopped_.load(std::memory_order_relaxed) || begin > first_bad_.load(std::memory_order_relaxed)) return;
            try {
                auto f = make();
                for (std::size_t row = begin; row < end;) {
                    const std::size_t done = f(row, end);
                    if (done == 0) return fail(row);
                    row += done;
                    if (on_caller && !spend(done)) return stopped_.store(true, std::memory_order_relaxed);
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
    bool spend(std::size_t vectors) {
        spent_ += vectors * length_;
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

inline Target target_of(const Job& job, std::size_t row) {
    return {static_cast<double>(job.x.length()), job.ratio[row], {job.room[row], job.room_low[row]}};
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

// Where results go: to an array ...
template <class E, bool Signed> class DenseRows {
    using T = Compute<E>;

public:
    static constexpr bool dense = true;
    DenseRows(const Job& job, E* shared)
        : writer_(job.out, shared), n_(job.x.length()), cache_bytes_(job.request.sampling.cache_bytes) {}
    void take(std::size_t row, const T* x, const Solution<T>& s) {
        write<Signed>(x, writer_.room(row), n_, s, cache_bytes_);
        writer_.finish(row);
    }
    void take(std::size_t row, const T* x, const Line<T>& line) {
        write_line<Signed>(x, writer_.room(row), n_, line);
        writer_.finish(row);
    }

private:
    Writer<E> writer_;
    std::size_t n_, cache_bytes_;
};

// ... or their nonzero entries to lists, every vector's apart, since threads find them in any order.
template <class E> struct SparseLists {
    std::vector<std::vector<std::int64_t>> positions;
    std::vector<std::vector<E>> values;
    explicit SparseLists(std::size_t rows) : positions(rows), values(rows) {}
};

template <class E, bool Signed> class SparseRows {
    using T = Compute<E>;

public:
    static constexpr bool dense = false;
    SparseRows(const Job& job, SparseLists<E>& lists) : n_(job.x.length()), lists_(lists) {}
    void take(std::size_t row, const T* x, const Solution<T>& s) {
        lists_.positions[row].reserve(std::min(n_, static_cast<std::size_t>(s.support_size)));
        lists_.values[row].reserve(lists_.positions[row].capacity());
        for_each_nonzero<E, Signed>(x, n_, s, [&](std::int64_t position, E value) { add(row, position, value); });
    }
    void take(std::size_t row, const T* x, const Line<T>& line) {
        T values[block_size];
        for (std::size_t begin = 0; begin < n_; begin += block_size) {
            const std::size_t size = std::min(block_size, n_ - begin);
            write_line<Signed>(x + begin, values, size, line);
            for (std::size_t i = 0; i < size; ++i)
                if (values[i] != 0) add(row, static_cast<std::int64_t>(begin + i), static_cast<E>(values[i]));
        }
    }

private:
    void add(std::size_t row, std::int64_t position, E value) {
        lists_.positions[row].push_back(position);
        lists_.values[row].push_back(value);
    }
    std::size_t n_;
    SparseLists<E>& lists_;
};

// Projects vectors: short ones in groups, any other, and what a group leaves, one at a time.
template <class E, bool Signed, class Rows> class RowProjector {
    using T = Compute<E>;
    using Group = LaneGroup<Signed, T>;
    static constexpr std::size_t lanes = Group::lanes;

public:
    // `make_rows(room)` makes where the results go; `room` can take a tile of them, or is null.
    template <class Make>
    RowProjector(const Job& job, const Request& request, Make make_rows)
        : job_(job), request_(request), n_(job.x.length()), reader_(job.x), rows_(make_rows(reader_.shared())) {
        const bool ordinary = request.solver == Solver::automatic && !request.only_increase;
        if (ordinary && job.x.rows() >= lanes && n_ <= std::min(Group::longest, request.sampling.longest_lane))
            group_.emplace(n_);
        if (group_ && !job.ratio.step) aim(0, std::make_index_sequence<lanes>());
    }

    std::size_t operator()(std::size_t row, std::size_t end) {
        if (group_ && row % lanes == 0 && row + lanes <= end) return project_group(row);
        return project_one(row, nullptr, 0) ? 1 : 0;
    }

private:
    // False if the vector is bad. `known` may be its support, found with `reads` reads.
    bool project_one(std::size_t row, const Support<T>* known, double reads) {
        const T* x = reader_.read(row);
        Projector<Signed, T> projector(x, n_, target_of(job_, row), job_.l2[row], request_);
        projector.next = after(x, 1);
        projector.room = room(row);
        projector.known = known;
        projector.reads = reads;
        const Solution<T>& s = projector.solve();
        if (job_.check != Check::none && !s.finite) return false;
        if (job_.records) job_.records[row] = record_of(s);
        rows_.take(row, x, s);
        return true;
    }

    // What is read and written next, so that it can come to the caches in time: the processor by itself does not look beyond
    // a page. (Beyond the end of an array nothing happens.)
    const void* after(const T* x, std::size_t vectors) const { return in_order_ ? x + vectors * n_ : nullptr; }
    const void* room(std::size_t row) const { return out_in_order_ ? job_.out.row(row) : nullptr; }

    // Returns how many vectors are done before a bad one.
    std::size_t project_group(std::size_t first) {
        if (job_.ratio.step) aim(first, std::make_index_sequence<lanes>());
        const T* rows[lanes];
        for (std::size_t lane = 0; lane < lanes; ++lane) rows[lane] = reader_.read(first + lane);
        group_->put_rows(rows);
        group_->solve(after(rows[0], lanes), room(first));
        if constexpr (std::is_same_v<E, T>) group_->finish(request_.norm, norms(first));
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::size_t row = first + lane;
            if constexpr (std::is_same_v<E, T>) {
                if (group_->found(lane)) {
                    if (job_.records) job_.records[row] = group_->record(lane);
                    rows_.take(row, rows[lane], group_->line(lane));
                    continue;
                }
            }
            // Half types are rounded from double.
            const Support<T> known = group_->support(lane);
            if (!project_one(row, &known, group_->reads(lane))) return lane;
        }
        return lanes;
    }
    template <std::size_t... Lane> void aim(std::size_t first, std::index_sequence<Lane...>) {
        const Target targets[] = {target_of(job_, first + Lane)...};
        group_->aim(targets);
    }
    Wide<T> norms(std::size_t first) const {
        if (request_.norm == NormRule::keep) return group_->norms();
        Wide<T> l2;
        for (std::size_t lane = 0; lane < lanes; ++lane) l2.set(lane, job_.l2[first + lane]);
        return l2;
    }

    const Job& job_;
    const Request& request_;
    std::size_t n_;
    bool in_order_ = job_.x.contiguous(sizeof(E)), out_in_order_ = Rows::dense && job_.out.contiguous(sizeof(E));
    Reader<E> reader_;
    Rows rows_;
    std::optional<Group> group_;
};

// The number of the first vector with NaN or infinity.
template <class E> std::int64_t first_not_finite(const Batch& batch, bool (*go_on)()) {
    const std::size_t rows = batch.rows(), n = batch.length();
    if constexpr (std::is_same_v<E, Compute<E>>)
        if (batch.contiguous(sizeof(E)) && all_finite(reinterpret_cast<const E*>(batch.row(0)), rows * n)) return all_good;
    return RowTasks(rows, n, go_on).run([&] {
        return [reader = Reader<E>(batch), n](std::size_t row, std::size_t) mutable {
            return std::size_t{all_finite(reader.read(row), n)};
        };
    });
}

// Projects every vector; returns the number of the first one with NaN or infinity (with all_first nothing has been
// written then), `interrupted`, or `all_good`.
template <class E, bool Signed> std::int64_t project_rows(const Job& job, bool (*go_on)()) {
    const std::size_t rows = job.x.rows(), n = job.x.length();
    const Request request = request_for<E>(job);
    // A single vector is read before it is written anyway.
    if (job.check == Check::all_first && rows > 1) {
        const std::int64_t bad = first_not_finite<E>(job.x, go_on);
        if (bad != all_good) return bad;
    }
    using Rows = DenseRows<E, Signed>;
    return RowTasks(rows, n, go_on).run([&] {
        return RowProjector<E, Signed, Rows>(job, request, [&](E* room) { return Rows(job, room); });
    });
}

// Like project_rows, but keeps the nonzero entries only: nothing of the size of x is written.
template <class E, bool Signed>
std::int64_t project_sparse_rows(const Job& job, SparseResult& result, bool (*go_on)()) {
    using Rows = SparseRows<E, Signed>;
    const std::size_t rows = job.x.rows();
    const Request request = request_for<E>(job);
    SparseLists<E> lists(rows);
    const std::int64_t outcome = RowTasks(rows, job.x.length(), go_on).run([&] {
        return RowProjector<E, Signed, Rows>(job, request, [&](E*) { return Rows(job, lists); });
    });
    if (outcome != all_good) return outcome;
    result.starts.assign(1, 0);
    for (const auto& row : lists.positions)
        result.starts.push_back(result.starts.back() + static_cast<std::int64_t>(row.size()));
    const auto total = static_cast<std::size_t>(result.starts.back());
    result.indices.reserve(total);
    result.values.reserve(total * sizeof(E));
    for (std::size_t i = 0; i < rows; ++i) {
        auto& positions = lists.positions[i];
        auto& values = lists.values[i];
        result.indices.insert(result.indices.end(), positions.begin(), positions.end());
        const char* bytes = reinterpret_cast<const char*>(values.data());
        result.values.insert(result.values.end(), bytes, bytes + values.size() * sizeof(E));
        // What was handed over is not held twice.
        std::vector<std::int64_t>().swap(positions);
        std::vector<E>().swap(values);
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
        std::size_t operator()(std::size_t i, std::size_t) {
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
            return 1;
        }
    };
    return RowTasks(job.value.rows(), job.value.length(), go_on).run([&] { return Worker{job}; });
}

// sigma(x) of every vector, NaN where it has none.
template <class E> std::int64_t sparseness_rows(const Batch& batch, double* out, bool (*go_on)()) {
    const std::size_t n = batch.length();
    return RowTasks(batch.rows(), n, go_on).run([&] {
        return [reader = Reader<E>(batch), out, n](std::size_t i, std::size_t) mutable -> std::size_t {
            const double root = std::sqrt(static_cast<double>(n));
            const Norms size = norms<false>(reader.read(i), n);
            const double sigma = (root - size.sum / size.l2()) / (root - 1);
            // Rounding must not push sigma out of [0, 1]; NaN passes through.
            out[i] = sigma < 0 ? 0 : (sigma > 1 ? 1 : sigma);
            return 1;
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
