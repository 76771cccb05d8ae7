// Many vectors: what is done with each, in the order they lie in.
#pragma once

#include <initializer_list>
#include <optional>

#include "product.hpp"
#include "run/masks.hpp"
#include "run/tasks.hpp"
#include "search/lanes.hpp"
#include "search/solve.hpp"
#include "simd/masks.hpp"

namespace hoyer::inline HOYER_ISA {

// What is asked of vectors of type E.
template <class E> Request request_for(const Job& job) {
    Request request = job.request;
    request.eps = epsilon_of<E>();
    // Half types are rounded correctly, which leaves the ratio of norms within one eps. Whatever the type, what a zero
    // would receive is a difference of two doubles.
    request.off_ratio = (sizeof(E) == 2 ? 1 : 4) * request.eps + 8 * epsilon_of<double>();
    return request;
}

// Tasks for vectors that are read and written as these batches say: those that share a tile or a group of lanes stay
// together, and those whose masks do.
template <class E> RowTasks tasks_for(std::initializer_list<const Batch*> batches, const Batch* masks = nullptr) {
    std::size_t together = masks && !masks->direct() ? Masks::slots_for(masks->length()) : 1;
    const std::size_t rows = (*batches.begin())->rows(), n = (*batches.begin())->length();
    for (const Batch* batch : batches) {
        const bool direct = std::is_same_v<E, Compute<E>> && batch->direct();
        if (!direct) together = std::max(together, tile_size<E>(n));
    }
    if (n <= std::max(longest_lane<Compute<E>>, longest_product<Compute<E>>))
        together = std::max(together, width<Compute<E>>);
    return {rows, n, together};
}

HOYER_INLINE ClosedForm form_of(const Job& job, std::size_t row) {
    const double n = static_cast<double>(job.length(row));
    if (job.request.norm == NormRule::free) return ClosedForm::of_l1(n, job.ratio[row]);
    return {n, job.ratio[row], {job.slack[row], job.slack_low[row]}};
}
// Where both norms are bounds: that in which l1 binds alone.
HOYER_INLINE ClosedForm l1_form_of(const Job& job, std::size_t row) {
    return ClosedForm::of_l1(static_cast<double>(job.length(row)), job.ratio[row] * job.l2[row]);
}

// Vectors with masks. They stay as long as their slots are not read anew.
template <class E> class MaskedRows {
    using T = Compute<E>;

public:
    explicit MaskedRows(const Job& job)
        : job_(job),
          masks_(job.where),
          // A register more than a group has.
          stride_(std::min(job.x.length(), longest_lane<T>) + width<T>),
          packed_(std::make_unique_for_overwrite<T[]>(width<T> * stride_)) {}
    // Long vectors, if they have to be, are packed where `place()` says.
    template <class Place> void read(std::size_t row, std::size_t slot, Reader<E>& reader, Place place) {
        T* const to = job_.length(row) > longest_lane<T> ? place() : packed_.get() + slot * stride_;
        vectors_[slot] = {reader.read(row), masks_.read(row), job_.x.length(), to};
    }
    MaskedVector<T>& at(std::size_t slot) { return vectors_[slot]; }

private:
    const Job& job_;
    Masks masks_;
    std::size_t stride_;
    std::unique_ptr<T[]> packed_;
    MaskedVector<T> vectors_[width<T>];
};

// Where results go: to an array ...
template <class E, bool Signed> class DenseRows {
    using T = Compute<E>;

public:
    DenseRows(const Job& job, E* shared)
        : job_(job), writer_(job.out, shared), n_(job.x.length()), cache_bytes_(job.request.sampling.cache_bytes) {
        const std::size_t bytes = job.out.rows() * n_ * sizeof(E),
                          cache = cache_bytes_ ? cache_bytes_ : last_level_cache();
        past_caches_ = n_ >= 2 * block_size && n_ <= part_size && bytes > cache && job.out.direct() &&
                       job.x.row(0) != job.out.row(0) && !job.lengths;
        if (job.lengths) masks_.emplace(job);
    }
    // Whether what is written comes through the caches, and is better there beforehand.
    bool cached() const { return !past_caches_; }
    // A vector, once before it is taken from the same slot. Long ones with masks may be packed where the result goes,
    // if they are of its type.
    LaneRow<T> read(std::size_t row, std::size_t slot, Reader<E>& reader) {
        if (!masks_) return {reader.read(row)};
        masks_->read(row, slot, reader, [&] {
            if constexpr (native)
                return writer_.place(row);
            else
                return reader.buffered(row);
        });
        return {nullptr, &masks_->at(slot)};
    }
    void take(std::size_t row, std::size_t slot, const T* x, const Solution<T>& s) {
        E* const to = writer_.place(row);
        if (masks_) {
            take_masked(row, masks_->at(slot), to, s);
        } else if (past_caches_ && !s.entries.positions && s.shape != Shape::tied) {
            // Many long vectors together are as large as one.
            with_result<Signed, E>(x, s, [&](const auto& result) { write_range(to, 0, n_, true, result); });
        } else {
            write<Signed>(x, to, n_, s, cache_bytes_);
        }
        writer_.finish(row);
    }
    void take(std::size_t row, std::size_t slot, const T* x, const Line<T>& line) {
        E* const to = writer_.place(row);
        if (masks_)
            write_line<Signed, true>(masks_->at(slot).x, to, n_, line, masks_->at(slot).mask);
        else
            write_line<Signed>(x, to, n_, line);
        writer_.finish(row);
    }

private:
    static constexpr bool native = std::is_same_v<E, T>;

    void take_masked(std::size_t row, const MaskedVector<T>& vector, E* to, const Solution<T>& s) {
        const T *const x = vector.x, *const packed = vector.packed;
        const Mask mask = vector.mask;
        if (!packed && s.entries.positions) return write<Signed>(x, to, n_, s, cache_bytes_);
        if constexpr (native) {
            // Unless it was packed in its own place, the vector itself is there.
            if (x != packed && s.entries.positions) {
                Solution<T> placed = s;
                std::vector<std::int64_t> positions(s.entries.positions, s.entries.positions + s.entries.count);
                unpack_positions(positions, mask, n_);
                placed.entries.positions = positions.data();
                return write<Signed>(x, to, n_, placed, cache_bytes_);
            }
            if (x != packed && is_line(s)) {
                const LineResult<Signed, T, true> result(x, line_of(s), mask);
                return write_long(to, n_, x == to, result, cache_bytes_);
            }
        }
        if (packed) {
            write<Signed>(packed, to, job_.length(row), s, cache_bytes_);
            unpack(to, mask, n_, job_.length(row));
        } else {
            write<Signed>(x, to, n_, s, cache_bytes_);
            clear(to, mask, n_);
        }
    }

    const Job& job_;
    Writer<E> writer_;
    std::optional<MaskedRows<E>> masks_;
    std::size_t n_, cache_bytes_;
    bool past_caches_;
};

// ... or their nonzero entries to lists, every vector's apart, since threads find them in any order.
template <class E> struct SparseList {
    std::vector<std::int64_t> positions;
    std::vector<E> values;

    template <class Position> void add(Position position, E value) {
        positions.push_back(static_cast<std::int64_t>(position));
        values.push_back(value);
    }
};

template <class E, bool Signed> class SparseRows {
    using T = Compute<E>;

public:
    SparseRows(const Job& job, std::vector<SparseList<E>>& lists) : job_(job), lists_(lists) {
        if (job.lengths) masks_.emplace(job);
    }
    bool cached() const { return false; }
    // As of DenseRows; long vectors are never together.
    LaneRow<T> read(std::size_t row, std::size_t slot, Reader<E>& reader) {
        if (!masks_) return {reader.read(row)};
        masks_->read(row, slot, reader, [&] {
            long_.resize(job_.x.length());
            return long_.data();
        });
        return {nullptr, &masks_->at(slot)};
    }
    void take(std::size_t row, std::size_t slot, const T* x, const Solution<T>& s) {
        if (masks_) {
            // Known positions are those in the vector as it was searched.
            MaskedVector<T>& vector = masks_->at(slot);
            x = s.entries.positions && !vector.packed ? vector.x : vector.pack();
        }
        SparseList<E>& list = lists_[row];
        list.positions.reserve(std::min(job_.length(row), static_cast<std::size_t>(s.support_size)));
        list.values.reserve(list.positions.capacity());
        list_nonzero(row, x, s);
        finish(row, slot);
    }
    void take(std::size_t row, std::size_t slot, const T* x, const Line<T>& line) {
        if (masks_) x = masks_->at(slot).pack();
        for_each_nonzero<T>(
            job_.length(row),
            [&](std::size_t begin, std::size_t size, T* to) { write_line<Signed>(x + begin, to, size, line); },
            [&](std::size_t position, T value) { lists_[row].add(position, static_cast<E>(value)); });
        finish(row, slot);
    }

private:
    void list_nonzero(std::size_t row, const T* x, const Solution<T>& s) {
        const auto sink = [&](auto position, E value) { lists_[row].add(position, value); };
        if (s.entries.positions) {
            fetch(x, s.entries);
            return for_each_entry<Signed, E>(s.entries, s, sink);
        }
        Solution<T> rest = s;
        const auto fill = [&](std::size_t begin, std::size_t size, E* to) {
            write_part<Signed>(x + begin, to, size, rest);
            // The first of tied entries is the first in the vector, not in the block.
            if (s.shape == Shape::tied && std::any_of(to, to + size, [](E v) { return v != E(0); }))
                rest.first = s.rest;
        };
        for_each_nonzero<E>(job_.length(row), fill, sink);
    }
    void finish(std::size_t row, std::size_t slot) {
        if (masks_ && masks_->at(slot).packed)
            unpack_positions(lists_[row].positions, masks_->at(slot).mask, job_.x.length());
    }

    const Job& job_;
    std::vector<SparseList<E>>& lists_;
    std::optional<MaskedRows<E>> masks_;
    std::vector<T> long_;
};

// The longest vectors of a job that are projected in groups; 0: none.
template <class T> std::size_t longest_grouped(const Job& job, const Request& request) {
    const bool ordinary = request.solver == Solver::automatic && !request.only_increase;
    // Those with masks are short vectors in places that may be longer, and a group of these must fit into a tile.
    const bool fit = job.x.length() <= (job.lengths ? 8 : 1) * longest_lane<T>;
    return ordinary && fit && job.x.rows() >= width<T> ? std::min(longest_lane<T>, request.sampling.longest_lane) : 0;
}

// Projects vectors: short ones in groups, any other, and what a group leaves, one at a time.
template <class E, bool Signed, class Rows> class RowProjector {
    using T = Compute<E>;
    using Group = LaneGroup<Signed, T>;
    static constexpr std::size_t lanes = Group::lanes;
    static constexpr bool native = std::is_same_v<E, T>;

public:
    // `make_rows(buffer)` makes where the results go; `buffer` can take a tile of them, or is null.
    template <class Make>
    RowProjector(const Job& job, const Request& request, Make make_rows)
        : job_(job),
          request_(request),
          longest_(longest_grouped<T>(job, request)),
          reader_(job.x),
          rows_(make_rows(reader_.shared())) {}

    std::size_t operator()(std::size_t row, std::size_t end) {
        if (row % lanes == 0 && row + lanes <= end && makes_group(row)) return project_group(row);
        return project_one(row, 0, rows_.read(row, 0, reader_), nullptr, 0) ? 1 : 0;
    }

private:
    // Whether the next vectors are short. The group is made ready for them then.
    bool makes_group(std::size_t first) {
        for (std::size_t lane = 0; lane < (job_.lengths ? lanes : 1); ++lane)
            if (job_.length(first + lane) > longest_) return false;
        const bool made = group_.has_value();
        if (!made) group_.emplace(std::min(job_.x.length(), longest_), request_.sampling);
        if (!made || job_.ratio.step || job_.lengths) aim(first);
        return true;
    }
    void aim(std::size_t first) {
        aim(first, std::make_index_sequence<lanes>());
        group_->measure([&](std::size_t lane) { return job_.length(first + lane); });
    }

    // False if the vector, which was read, is bad. `known` may be its support, found with `reads` reads.
    bool project_one(std::size_t row, std::size_t slot, const LaneRow<T>& given, const Support<T>* known,
                     double reads) {
        if (job_.length(row) == 0) return no_entries(row, slot, given.x);
        Projector<Signed, T> projector(given.x, job_.length(row), form_of(job_, row), job_.l2[row], request_);
        projector.ahead = {after(row, 1), output(row)};
        projector.masked = given.masked;
        projector.known = known;
        projector.reads = reads;
        const Solution<T>& s = projector.solve();
        if (job_.check != Check::none && !s.finite) return false;
        take(row, slot, given.x, s);
        return true;
    }
    void take(std::size_t row, std::size_t slot, const T* x, const Solution<T>& s) {
        tell(row, s);
        rows_.take(row, slot, x, s);
    }
    void tell(std::size_t row, const Record& record) {
        if (job_.records) job_.records[row] = record;
        if (job_.scales) job_.scales[row] = record.scale;
        if (job_.norms) job_.norms[row] = record.l2;
        if (job_.active) job_.active[row] = static_cast<std::int8_t>(record.active);
    }
    // A vector whose mask leaves nothing.
    bool no_entries(std::size_t row, std::size_t slot, const T* x) {
        Solution<T> s;
        s.shape = Shape::zero;
        s.l1 = s.l2 = 0;
        s.active = static_cast<double>(Active::none);
        take(row, slot, x, s);
        return true;
    }

    // What is read and written next, so that it can come to the caches in time: the processor by itself does not look
    // beyond a page.
    Address after(std::size_t row, std::size_t vectors) const {
        return in_order_ ? address_of(job_.x.row(row)) + vectors * job_.x.length() * sizeof(T) : 0;
    }
    Address output(std::size_t row) const { return out_in_order_ ? address_of(job_.out.row(row)) : 0; }

    // Returns how many vectors are done before a bad one.
    std::size_t project_group(std::size_t first) {
        if (!group_->pays()) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const std::size_t row = first + lane;
                if (!project_one(row, 0, rows_.read(row, 0, reader_), nullptr, 0)) return lane;
            }
            return lanes;
        }
        LaneRow<T> rows[lanes];
        for (std::size_t lane = 0; lane < lanes; ++lane) rows[lane] = rows_.read(first + lane, lane, reader_);
        if (!group_->solve(rows, {after(first, lanes), output(first)})) {
            for (std::size_t lane = 0; lane < lanes; ++lane)
                if (!project_one(first + lane, lane, rows[lane], nullptr, 1)) return lane;
            return lanes;
        }
        if constexpr (native) {
            group_->finish(request_.norm, norms(first, rows));
            if (two_bounds()) return take_bounded(first, rows);
        }
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::size_t row = first + lane;
            if constexpr (native) {
                if (group_->found(lane)) {
                    take(row, lane, rows[lane].x, {group_->record(lane), group_->line(lane)});
                    continue;
                }
            }
            // Half types are rounded from double.
            const Support<T> known = group_->support(lane);
            if (!project_one(row, lane, rows[lane], &known, group_->reads(lane))) return lane;
        }
        return lanes;
    }
    // What a group found out about a vector.
    struct Found {
        Record record;
        Line<T> line;
    };
    void take(std::size_t row, std::size_t slot, const T* x, const Found& found) {
        tell(row, found.record);
        rows_.take(row, slot, x, found.line);
    }

    bool two_bounds() const { return request_.at_most && request_.norm != NormRule::free; }
    // Where both norms are bounds, one may bind alone: vectors for which the group did not find out that what it aimed
    // at is right are looked at again, before anything is written. The next group begins with what was right more
    // often.
    std::size_t take_bounded(std::size_t first, const LaneRow<T> (&rows)[lanes]) {
        std::optional<Found> found[lanes];
        std::size_t counts[2]{};
        const auto collect = [&](std::size_t& count) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                if (found[lane] || !group_->found(lane)) continue;
                found[lane] = {group_->record(lane), group_->line(lane)};
                ++count;
            }
        };
        collect(counts[0]);
        if (counts[0] < lanes) {
            aims_at_both_ = !aims_at_both_;
            aim(first);
            if (group_->pays() && group_->solve(rows, {})) {
                group_->finish(request_.norm, norms(first, rows));
                collect(counts[1]);
            }
            if (counts[0] >= counts[1]) {
                aims_at_both_ = !aims_at_both_;
                aim(first);
            }
        }
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            if (found[lane])
                take(first + lane, lane, rows[lane].x, *found[lane]);
            else if (!project_one(first + lane, lane, rows[lane], nullptr, 2))
                return lane;
        }
        return lanes;
    }
    template <std::size_t... Lane> void aim(std::size_t first, std::index_sequence<Lane...>) {
        const bool l1_alone = two_bounds() && !aims_at_both_;
        const ClosedForm forms[] = {(l1_alone ? l1_form_of(job_, first + Lane) : form_of(job_, first + Lane))...};
        group_->aim(forms, !request_.at_most ? Bounds::none : two_bounds() ? Bounds::both : Bounds::l1);
    }
    Wide<T> norms(std::size_t first, const LaneRow<T> (&rows)[lanes]) const {
        if (request_.norm == NormRule::keep) return group_->norms(rows);
        double l2[lanes];
        for (std::size_t lane = 0; lane < lanes; ++lane) l2[lane] = job_.l2[first + lane];
        return Wide<T>::from(l2);
    }

    const Job& job_;
    const Request& request_;
    std::size_t longest_;  // that is grouped
    Reader<E> reader_;
    Rows rows_;
    bool in_order_ = native && job_.x.contiguous(sizeof(E));
    bool out_in_order_ = native && rows_.cached() && job_.out.contiguous(sizeof(E));
    std::optional<Group> group_;
    // Of two bounds, whether groups look for results in which both bind; half types are rounded from double, and those
    // searches begin with l1.
    bool aims_at_both_ = native;
};

// The number of the first vector with NaN or infinity.
template <class E> std::int64_t first_not_finite(const Batch& batch, bool (*go_on)()) {
    const std::size_t rows = batch.rows(), n = batch.length();
    if constexpr (std::is_same_v<E, Compute<E>>)
        if (batch.contiguous(sizeof(E)) && all_finite(reinterpret_cast<const E*>(batch.row(0)), rows * n))
            return all_good;
    return run_rows(tasks_for<E>({&batch}), go_on, [&] {
        return [reader = Reader<E>(batch), n](std::size_t row, std::size_t) mutable {
            return std::size_t{all_finite(reader.read(row), n)};
        };
    });
}
// The same, among the entries that masks leave.
template <class E> std::int64_t first_not_finite(const Batch& batch, const Batch& masks, bool (*go_on)()) {
    return run_rows(tasks_for<E>({&batch}, &masks), go_on, [&] {
        return [reader = Reader<E>(batch), where = Masks(masks), n = batch.length()](std::size_t row,
                                                                                     std::size_t) mutable {
            return std::size_t{all_finite_in(reader.read(row), where.read(row), n)};
        };
    });
}

// Tasks for the vectors of a job.
template <class E> RowTasks tasks_of(const Job& job) {
    return tasks_for<E>({&job.x, &job.out}, job.lengths ? &job.where : nullptr);
}

// Projects every vector; returns the number of the first one with NaN or infinity (with all_first nothing has been
// written then), `interrupted`, or `all_good`.
template <class E, bool Signed> std::int64_t project_rows(const Job& job, bool (*go_on)()) {
    const Request request = request_for<E>(job);
    // A single vector is read before it is written anyway, unless it is packed there.
    if (job.check == Check::all_first && (job.x.rows() > 1 || job.lengths)) {
        const std::int64_t bad =
            job.lengths ? first_not_finite<E>(job.x, job.where, go_on) : first_not_finite<E>(job.x, go_on);
        if (bad != all_good) return bad;
    }
    using Rows = DenseRows<E, Signed>;
    return run_rows(tasks_of<E>(job), go_on, [&] {
        return RowProjector<E, Signed, Rows>(job, request, [&](E* buffer) { return Rows(job, buffer); });
    });
}

// Like project_rows, but keeps the nonzero entries only: nothing of the size of x is written.
template <class E, bool Signed>
std::int64_t project_sparse_rows(const Job& job, SparseResult& result, bool (*go_on)()) {
    using Rows = SparseRows<E, Signed>;
    const Request request = request_for<E>(job);
    std::vector<SparseList<E>> lists(job.x.rows());
    const std::int64_t outcome = run_rows(tasks_of<E>(job), go_on, [&] {
        return RowProjector<E, Signed, Rows>(job, request, [&](E*) { return Rows(job, lists); });
    });
    if (outcome != all_good) return outcome;
    result.starts.assign(1, 0);
    for (const SparseList<E>& list : lists)
        result.starts.push_back(result.starts.back() + static_cast<std::int64_t>(list.positions.size()));
    const auto total = static_cast<std::size_t>(result.starts.back());
    result.indices.reserve(total);
    result.values.reserve(total * sizeof(E));
    for (SparseList<E>& list : lists) {
        result.indices.insert(result.indices.end(), list.positions.begin(), list.positions.end());
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(list.values.data());
        result.values.insert(result.values.end(), bytes, bytes + list.values.size() * sizeof(E));
        list = {};  // what was handed over is not held twice
    }
    return all_good;
}

// Products with Jacobians, or derivatives by the target.
template <class E> class GradientRows {
    using T = Compute<E>;
    static constexpr std::size_t lanes = width<double>;
    // Vectors up to a KiB are taken together: of longer ones the first cache would not keep what was read.
    static constexpr std::size_t most_together = (std::size_t{1} << 10) / sizeof(T);
    static constexpr bool native = std::is_same_v<E, T>;

public:
    explicit GradientRows(const GradientJob& job)
        : job_(job),
          short_(native && !job.by_target && (job.norm == NormRule::fixed || job.norm == NormRule::free) &&
                 n_ <= longest_product<T>) {}

    std::size_t operator()(std::size_t row, std::size_t end) {
        if constexpr (native)
            if (short_)
                return n_ <= most_together ? several<lanes>(row, std::min(end - row, lanes)) : several<1>(row, 1);
        one(row);
        return 1;
    }

private:
    Solved at(std::size_t row, const T* p) const {
        Solved solved{0, 0, 0, Active::both, job_.norm, job_.mode, job_.nonnegative};
        if (job_.records) {
            const Record& r = job_.records[row];
            solved.scale = r.scale;
            solved.l1 = r.l1;
            solved.l2 = r.l2;
            solved.active = static_cast<Active>(static_cast<int>(r.active));
        } else {
            solved.l2 = norm_of(row, p);
            solved.l1 = job_.ratio[row] * solved.l2;
            if (job_.active)
                solved.active = static_cast<Active>(job_.active[row]);
            else if (job_.norm == NormRule::free)
                solved.active = Active::l1;
        }
        if (job_.scales) solved.scale = job_.scales[row];
        return solved;
    }
    double norm_of(std::size_t row, const T* p) const {
        if (job_.norm != NormRule::keep && job_.norm != NormRule::nearest) return job_.l2[row];
        if (job_.norms) return job_.norms[row];
        const Norms size = norms<false>(p, n_);
        return size.l2() * size.unit;
    }
    // What the derivatives by the norms mean for what was asked for: only of norms that bind.
    void tell(std::size_t row, const Solved& solved, const TargetProduct& by) {
        if (job_.target_products) job_.target_products[row] = by;
        if (!job_.changes) return;
        Change& change = job_.changes[row] = {0, 0, 0, 0};
        if (solved.active == Active::both) {
            change.ratio = solved.l2 * by.by_l1;
            change.log_norm = job_.both_norms ? solved.l1 * by.by_l1 + solved.l2 * by.by_l2 : by.by_both;
        } else if (solved.active == Active::l1) {
            change.log_l1 = solved.l1 * by.by_l1;
        } else if (solved.active != Active::none) {
            change.log_kept = by.by_both;
        }
    }

    // Short vectors, all of which are read before the first result is written.
    template <std::size_t Size> std::size_t several(std::size_t first, std::size_t size) {
        const T *p[Size], *y[Size];
        Solved points[Size];
        ProductGroup<T, Size> group;
        for (std::size_t lane = 0; lane < size; ++lane) {
            p[lane] = value_.read(first + lane);
            y[lane] = y_.read(first + lane);
            points[lane] = at(first + lane, p[lane]);
            group.read(lane, p[lane], y[lane], n_, points[lane]);
        }
        group.solve(size);
        for (std::size_t lane = 0; lane < size; ++lane) {
            const std::size_t row = first + lane;
            if (group.ordinary(lane)) {
                group.write(lane, p[lane], y[lane], out_.place(row), n_);
                tell(row, points[lane], group.target_product(lane));
                out_.finish(row);
            } else {
                one(row);
            }
        }
        return size;
    }

    void one(std::size_t row) {
        const T *p = value_.read(row), *x = job_.has_x ? x_.read(row) : nullptr;
        if (job_.by_target) {
            target_gradient(p, x, into(out_, wide_out_, row), into(second_, wide_second_, row), n_, at(row, p));
            finish(second_, wide_second_, row);
        } else {
            const Solved solved = at(row, p);
            TargetProduct by{};
            Product<T>(p, y_.read(row), x, into(out_, wide_out_, row), n_, solved, by_target_ ? &by : nullptr,
                       job_.cache_bytes)
                .run();
            if (by_target_) tell(row, solved, by);
        }
        finish(out_, wide_out_, row);
    }

    T* into(Writer<E>& writer, std::vector<T>& wide, std::size_t row) {
        if constexpr (native)
            return writer.place(row);
        else
            return wide.data();
    }
    void finish(Writer<E>& writer, const std::vector<T>& wide, std::size_t row) {
        if constexpr (!native) std::copy(wide.begin(), wide.end(), writer.place(row));
        writer.finish(row);
    }

    const GradientJob& job_;
    std::size_t n_ = job_.value.length();
    bool short_, by_target_ = job_.target_products || job_.changes;
    Reader<E> value_{job_.value}, y_{job_.y}, x_{job_.x};
    Writer<E> out_{job_.out}, second_{job_.second};
    // Half types are computed in a wider one and narrowed.
    std::vector<T> wide_out_ = std::vector<T>(native ? 0 : n_), wide_second_ = wide_out_;
};

template <class E> std::int64_t gradient_rows(const GradientJob& job, bool (*go_on)()) {
    return run_rows(tasks_for<E>({&job.value, &job.y, &job.x, &job.out, &job.second}), go_on,
                    [&] { return GradientRows<E>(job); });
}

// Algorithm 1 for every vector.
template <class E, bool Signed> std::int64_t sums_rows(const SumsJob& job, bool (*go_on)()) {
    return run_rows(tasks_for<E>({&job.x}), go_on, [&] {
        return [&job, reader = Reader<E>(job.x)](std::size_t row, std::size_t) mutable -> std::size_t {
            sums<Signed>(reader.read(row), job.x.length(), job.pivots + row * job.pivot_step, job.count,
                         job.known ? job.known + row : nullptr, job.references ? job.references + row : nullptr,
                         job.out + row * job.count);
            return 1;
        };
    });
}

template <class E, bool Signed> std::int64_t between_rows(const BetweenJob& job, bool (*go_on)()) {
    return run_rows(tasks_for<E>({&job.x}), go_on, [&] {
        return [&job, reader = Reader<E>(job.x)](std::size_t row, std::size_t) mutable -> std::size_t {
            using T = std::remove_cvref_t<decltype(*reader.read(0))>;
            constexpr double nan = std::numeric_limits<double>::quiet_NaN();
            job.out[row] = {nan, nan, nan, nan, nan};
            const double low = job.lows[row], high = job.highs[row];
            if (!(low < high) || std::isnan(job.known[row].low)) return 1;
            const Bracket<T> bracket{floor_to<T>(low), floor_to<T>(high), job.references[row]};
            job.out[row] =
                between<Signed>(reader.read(row), job.x.length(), bracket, job.known[row], (*job.inside)[row]);
            return 1;
        };
    });
}

template <class E, bool Signed> std::int64_t summary_rows(const SummaryJob& job, bool (*go_on)()) {
    return run_rows(tasks_for<E>({&job.x}), go_on, [&] {
        return [&job, reader = Reader<E>(job.x)](std::size_t row, std::size_t) mutable -> std::size_t {
            job.out[row] = summary<Signed>(reader.read(row), job.x.length());
            return 1;
        };
    });
}

// sigma(x) of every vector, NaN where it has none.
template <class E> std::int64_t sparseness_rows(const Batch& batch, double* out, bool (*go_on)()) {
    const std::size_t n = batch.length();
    return run_rows(tasks_for<E>({&batch}), go_on, [&] {
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

// How many entries of every vector its mask leaves.
inline std::int64_t count_rows(const Batch& masks, std::int64_t* lengths, bool (*go_on)()) {
    const std::size_t n = masks.length();
    return run_rows(RowTasks(masks.rows(), n, Masks::slots_for(n)), go_on, [&] {
        return [&masks, lengths, n, where = Masks(masks)](std::size_t row, std::size_t end) mutable -> std::size_t {
            // One mask may do for many vectors.
            const std::size_t count = count_mask(where.read(row), n), first = row;
            do lengths[row++] = static_cast<std::int64_t>(count);
            while (row < end && masks.row(row) == masks.row(first));
            return row - first;
        };
    });
}

// Calls f.operator()<E>() for the element type at hand.
template <class F> std::int64_t with_element(Element element, F&& f) {
    switch (element) {
        case Element::float16:
            return f.template operator()<Half>();
        case Element::float32:
            return f.template operator()<float>();
        case Element::float64:
            return f.template operator()<double>();
        case Element::bfloat16:
            return f.template operator()<BFloat16>();
    }
    return all_good;
}

}  // namespace hoyer::inline HOYER_ISA
