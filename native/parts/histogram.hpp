// Algorithm 1 for a vector that lies in parts, in the form of a histogram.
//
// Floats are ordered like integers, their keys, and a bin takes neighbouring ones, none of which lie on both sides of a
// power of two. So within a bin entries are an integer r times one step above some number, and the count, the sum of r
// and the sum of its squares tell everything that a search for alpha needs. These are integers: parts add up to the
// same numbers however a vector is divided.
#pragma once

#include "jobs.hpp"
#include "run/masks.hpp"
#include "simd/masks.hpp"
#include "simd/registers.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

// The bits of a float's size, with its sign: integers in the order of the floats, and 0 for both zeros.
template <bool Signed, class T> HOYER_INLINE std::int64_t key_of(T x) {
    const auto size = static_cast<std::int64_t>(size_bits(x));
    return !Signed && x < 0 ? -size : size;
}

// How far a key is from another; far more than any span if it is below.
HOYER_INLINE std::uint64_t distance_of(std::int64_t key, std::int64_t lower) {
    return static_cast<std::uint64_t>(key) - static_cast<std::uint64_t>(lower);
}

constexpr std::size_t block_entries = 4096;

// Of 64 bytes, which are 0 or 1, those that are 1 as bits.
HOYER_INLINE std::uint64_t bits_of_bytes(const std::uint8_t* bytes) {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < 8; ++k) {
        std::uint64_t eight;
        std::memcpy(&eight, bytes + 8 * k, sizeof eight);
        // The product has bit i of the highest byte from byte i, and there no carries meet.
        bits |= (eight * 0x0102040810204080) >> 56 << 8 * k;
    }
    return bits;
}

// Calls see(i) for the entries whose keys lie in the span, of which there are few mostly.
template <bool Signed, class T, class See>
HOYER_INLINE void for_each_inside(const T* x, std::size_t n, const HistogramJob& job, See see) {
    using Bits = BitsOf<T>;
    if (job.span == 0) return;
    // As bits of the type itself distances are right if they cannot wrap.
    constexpr auto end = std::int64_t{1} << (8 * std::min(sizeof(T), std::size_t{7}) - 1);
    const bool narrow = sizeof(T) == 8 || (job.lower >= -end && job.lower < end &&
                                           job.span <= static_cast<std::uint64_t>(end - job.lower));
    // (A span of 2^32 has no room in the type, its last distance has.)
    const auto lower = static_cast<Bits>(job.lower), last = static_cast<Bits>(job.span - 1);
    constexpr std::size_t step = 512;
    alignas(64) std::uint8_t inside[step];
    for (std::size_t at = 0; at < n; at += step) {
        const std::size_t size = std::min(step, n - at);
        const T* const some = x + at;
        if (size < step) std::fill(std::begin(inside), std::end(inside), std::uint8_t{0});
        if (narrow) {
            for (std::size_t i = 0; i < size; ++i) {
                const Bits bits = size_bits(some[i]);
                inside[i] = static_cast<Bits>((!Signed && some[i] < 0 ? -bits : bits) - lower) <= last;
            }
        } else {
            for (std::size_t i = 0; i < size; ++i)
                inside[i] = distance_of(key_of<Signed>(some[i]), job.lower) < job.span;
        }
        for (std::size_t i = 0; i < size; i += 64)
            for (std::uint64_t bits = bits_of_bytes(inside + i); bits != 0; bits &= bits - 1)
                see(at + i + static_cast<std::size_t>(std::countr_zero(bits)));
    }
}

// Calls f(entries, count, mask or null, position of the first) for a part, a block at a time; false if that was
// interrupted.
template <class E, class F> bool for_each_block(const HistogramJob& job, bool (*go_on)(), F f) {
    const Batch& x = job.x;
    const std::size_t n = x.length();
    if (n == 0) return true;
    Masks masks(job.where);
    const Mask mask = job.masked ? masks.read(0) : nullptr;
    std::size_t done = 0;
    const auto run = [&](const Batch& rows) {
        Reader<E> reader(rows);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const Compute<E>* at = reader.read(row);
            for (std::size_t left = rows.length(); left > 0;) {
                const std::size_t size = std::min(left, block_entries);
                f(at, size, mask ? mask + done : nullptr, done);
                at += size;
                left -= size;
                done += size;
                if (done / block_entries % 1024 == 1023 && !go_on()) return false;
            }
        }
        return true;
    };
    // Parts that are not contiguous are copied as a whole.
    if (!x.contiguous(sizeof(E)) || n <= block_entries) return run(x);
    const std::size_t rest = n % block_entries;
    return run(Batch::contiguous(x.row(0), n / block_entries, block_entries, sizeof(E))) &&
           (rest == 0 || run(Batch::contiguous(x.row(0) + (n - rest) * sizeof(E), 1, rest, sizeof(E))));
}
// The same with those entries alone that count.
template <class E, class F> bool for_each_packed_block(const HistogramJob& job, bool (*go_on)(), F f) {
    std::vector<Compute<E>> packed(job.masked ? block_entries : 0);
    return for_each_block<E>(job, go_on, [&](const Compute<E>* x, std::size_t n, Mask mask, std::size_t) {
        if (!mask) return f(x, n);
        f(packed.data(), pack(x, mask, n, packed.data()));
    });
}

// What a bin has: the sums of r and of its squares, of 2^21 entries at most before they are added to the table.
template <class Number> struct Bin {
    static constexpr int widest = sizeof(Number) == 8 ? 21 : widest_bin;
    static constexpr std::size_t most = std::size_t{1} << 21;
    std::int64_t count = 0;
    Number sum = 0, squares = 0;
};

// Adds a number to limbs, of which every bin has one in a row; the last limb takes all that is left. The others stay
// below 2^48, so that those of many parts can be added.
template <class Number> void add_limbs(std::int64_t* to, std::size_t limbs, std::size_t stride, Number number) {
    for (std::size_t i = 0; i < limbs; ++i, number >>= limb_bits) {
        number += static_cast<Number>(to[i * stride]);
        to[i * stride] = static_cast<std::int64_t>(i + 1 < limbs ? number & ((Number{1} << limb_bits) - 1) : number);
    }
}

template <class Number> void flush(std::vector<Bin<Number>>& bins, int width, std::int64_t* table) {
    const std::size_t limbs = limbs_for(width), count = bins.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Bin<Number> bin = std::exchange(bins[i], {});
        table[i] += bin.count;
        add_limbs(table + count + i, limbs, count, bin.sum);
        add_limbs(table + (1 + limbs) * count + i, limbs_for(2 * width), count, bin.squares);
    }
}

// How many entries are not finite, and how many are zero.
struct SpecialEntries {
    std::int64_t not_finite = 0, zeros = 0;
};
// (Of a block: counted in integers as wide as the entries, which takes half the time.)
template <class T> SpecialEntries special_entries(const T* x, std::size_t n) {
    CountOf<T> not_finite = 0, zeros = 0;
    for (std::size_t i = 0; i < n; ++i) {
        not_finite += !(size_bits(x[i]) < infinity_bits<T>);
        zeros += x[i] == 0;
    }
    return {not_finite, zeros};
}

// Into bins of one level or of several. What is not finite may be in some bin as well: then nobody asks for the bins.
template <bool Signed, std::size_t level_count, class T, class Number>
void add_entries(const T* x, std::size_t n, const HistogramJob& job, Bin<Number>* bins) {
    const std::uint64_t mask = (std::uint64_t{1} << job.width) - 1;
    const auto levels = job.levels;
    const auto number_in = [](std::uint64_t distance, const BinLevel& level) {
        return (distance - static_cast<std::uint64_t>(level.start)) >> level.width;
    };
    for_each_inside<Signed>(x, n, job, [&](std::size_t i) {
        const std::uint64_t distance = distance_of(key_of<Signed>(x[i]), job.lower);
        std::uint64_t number = number_in(distance, levels[0]), before = 0;
        std::size_t level = 0;
        while (number >= levels[level].count) {
            before += levels[level].count;
            if (++level == level_count) break;
            number = number_in(distance, levels[level]);
        }
        if (level == level_count) return;
        const std::uint64_t rest = distance & mask;
        Bin<Number>& bin = bins[before + number];
        bin.count += 1;
        bin.sum += rest;
        bin.squares += static_cast<Number>(rest) * rest;
    });
}

// Bins of one level for all keys of 32 bits. Their sums fit into two words, the count above the sum of r, that are
// added at once; and neighbouring entries, which often fall into one bin, go to different copies of it. (Of a narrow
// span few entries are inside: finding those first is faster.)
class PackedBins {
public:
    explicit PackedBins(const HistogramJob& job) : job_(job), bins_(count() * copies) {}

    template <bool Signed> static bool suit(const HistogramJob& job) {
        constexpr std::int64_t end = std::int64_t{1} << 31;
        constexpr std::int64_t first = Signed ? 0 : -end;
        const BinLevel& level = job.levels[0];
        return job.lower == first && job.span == static_cast<std::uint64_t>(end - first) && level.start == 0 &&
               level.width < 32 && static_cast<std::uint64_t>(level.count) << level.width == job.span &&
               job.levels[1].count == 0 && job.width <= Bin<std::uint64_t>::widest && job.x.length() >= enough;
    }

    template <bool Signed> void add(const float* x, std::size_t n) {
        for (std::size_t at = 0; at < n; at += step) add_some<Signed>(x + at, std::min(step, n - at));
    }

    // Moves everything to a table.
    void flush(std::int64_t* table) {
        std::vector<Bin<std::uint64_t>> whole(count());
        for (std::size_t i = 0; i < whole.size(); ++i) {
            Words words;
            for (std::size_t copy = 0; copy < copies; ++copy)
                words.pair += std::exchange(bins_[i * copies + copy], {}).pair;
            whole[i] = {static_cast<std::int64_t>(words.pair[0] >> sum_bits), words.pair[0] & (one - 1), words.pair[1]};
        }
        hoyer::flush(whole, job_.width, table);
    }

private:
    struct Words {
        typedef std::uint64_t Pair __attribute__((vector_size(16)));
        Pair pair = {};
    };
    static constexpr std::size_t copies = 4, step = 512;
    static constexpr std::size_t enough = 1 << 13;  // for fewer entries the copies cost more than they save
    // The sum of as many r as there may be in a bin is below this power of two.
    static constexpr int sum_bits = 2 * Bin<std::uint64_t>::widest;
    static constexpr std::uint64_t one = std::uint64_t{1} << sum_bits;
    static_assert(Bin<std::uint64_t>::most <= std::size_t{1} << (63 - sum_bits));

    std::size_t count() const { return job_.levels[0].count; }

    template <bool Signed> void add_some(const float* x, std::size_t n) {
        alignas(64) std::uint32_t numbers[step];
        alignas(64) std::uint64_t words[step][2];
        const auto lower = static_cast<std::uint32_t>(job_.lower);
        const std::uint32_t rest_mask = (std::uint32_t{1} << job_.width) - 1;
        const int width = job_.levels[0].width;
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint32_t size = size_bits(x[i]);
            const std::uint32_t distance = (!Signed && x[i] < 0 ? -size : size) - lower;
            const std::uint32_t rest = distance & rest_mask;
            numbers[i] = distance >> width;
            words[i][0] = one + rest;
            words[i][1] = std::uint64_t{rest} * rest;
        }
        for (std::size_t i = 0; i < n; ++i) {
            Words own;
            std::memcpy(&own, words[i], sizeof own);
            bins_[numbers[i] * copies + i % copies].pair += own.pair;
        }
    }

    const HistogramJob& job_;
    std::vector<Words> bins_;
};

// Calls add(entries, count) for blocks of a part, and flush() before a bin may have too many entries.
template <class E, class Add, class Flush>
bool for_each_sum(const HistogramJob& job, bool (*go_on)(), Add add, Flush flush) {
    std::size_t held = 0;
    const bool done = for_each_packed_block<E>(job, go_on, [&](const Compute<E>* x, std::size_t n) {
        const SpecialEntries special = special_entries(x, n);
        job.out[0] += special.not_finite;
        job.out[1] += special.zeros;
        add(x, n);
        held += n;
        if (held + block_entries <= Bin<std::uint64_t>::most) return;
        flush();
        held = 0;
    });
    flush();
    return done;
}

template <class E, bool Signed, class Number> bool fill_histogram(const HistogramJob& job, bool (*go_on)()) {
    std::vector<Bin<Number>> bins(job.bins());
    const bool several = job.levels[1].count > 0;
    const auto add = [&](const Compute<E>* x, std::size_t n) {
        if (several)
            add_entries<Signed, most_levels>(x, n, job, bins.data());
        else
            add_entries<Signed, 1>(x, n, job, bins.data());
    };
    return for_each_sum<E>(job, go_on, add, [&] { flush(bins, job.width, job.out + 2); });
}

template <class E, bool Signed> bool fill_packed(const HistogramJob& job, bool (*go_on)()) {
    PackedBins bins(job);
    const auto add = [&](const float* x, std::size_t n) { bins.add<Signed>(x, n); };
    return for_each_sum<E>(job, go_on, add, [&] { bins.flush(job.out + 2); });
}

template <class E, bool Signed> std::int64_t histogram(const HistogramJob& job, bool (*go_on)()) {
    if constexpr (std::is_same_v<Compute<E>, float>)
        if (PackedBins::suit<Signed>(job)) return fill_packed<E, Signed>(job, go_on) ? all_good : interrupted;
    const bool narrow = job.width <= Bin<std::uint64_t>::widest;
    const bool done = narrow ? fill_histogram<E, Signed, std::uint64_t>(job, go_on)
                             : fill_histogram<E, Signed, unsigned __int128>(job, go_on);
    return done ? all_good : interrupted;
}

// The keys of all entries in the span; with `places` each one is followed by its place in the part.
template <class E, bool Signed>
std::int64_t gather(const HistogramJob& job, bool places, std::vector<std::int64_t>& keys, bool (*go_on)()) {
    const bool done = for_each_block<E>(job, go_on, [&](const Compute<E>* x, std::size_t n, Mask mask, std::size_t at) {
        for_each_inside<Signed>(x, n, job, [&](std::size_t i) {
            if (mask && !mask[i]) return;
            keys.push_back(key_of<Signed>(x[i]));
            if (places) keys.push_back(static_cast<std::int64_t>(at + i));
        });
    });
    return done ? all_good : interrupted;
}

// Of the entries below a key the largest key, and the place in the part of the first entry with this key, negated: of
// both the larger one holds for two parts of one row together. The least integer if there is none.
template <class E, bool Signed> std::int64_t neighbours(const HistogramJob& job, bool (*go_on)()) {
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
    std::int64_t below = none, place = none;
    const auto see = [&](const Compute<E>* x, std::size_t n, Mask mask, std::size_t begin) {
        const std::int64_t wanted = job.lower;
        std::int64_t largest = none, matches = 0;
        const auto key_at = [&](std::size_t i) { return mask && !mask[i] ? none : key_of<Signed>(x[i]); };
        for (std::size_t i = 0; i < n; ++i) {
            const std::int64_t key = key_at(i);
            largest = std::max(largest, key < wanted ? key : none);
            matches += key == wanted;
        }
        below = std::max(below, largest);
        for (std::size_t i = 0; matches && place == none; ++i)
            if (key_at(i) == wanted) place = -static_cast<std::int64_t>(begin + i);
    };
    const bool done = for_each_block<E>(job, go_on, see);
    job.out[0] = below;
    job.out[1] = place;
    return done ? all_good : interrupted;
}

// The results of a part's entries, zero for those that do not count. The one at `place` is the first of tied ones; -1:
// it lies elsewhere, or is as all.
template <class E, bool Signed>
void write_by(const Formula& formula, const HistogramJob& job, const Batch& out, std::int64_t place) {
    using T = Compute<E>;
    const Batch& x = job.x;
    Solution<T> s;
    s.shape = formula.base == formula.base ? Shape::interior : Shape::invalid;
    s.pivot = static_cast<T>(formula.pivot);
    s.frame = {formula.reference, formula.after, formula.before};
    s.mean = formula.mean;
    s.gain = formula.gain;
    s.base = formula.base;
    s.norm = {1, formula.power};
    s.shift = formula.shift;
    s.scale = formula.scale;
    Reader<E> reader(x);
    Writer<E> writer(out);
    const T* const from = reader.read(0);
    const T first = place >= 0 ? from[place] : T(0);
    write<Signed>(from, writer.place(0), x.length(), s);
    s.base = formula.first;
    if (place >= 0) write_part<Signed>(&first, writer.place(0) + place, 1, s);
    if (job.masked) clear(writer.place(0), Masks(job.where).read(0), x.length());
    writer.finish(0);
}

}  // namespace hoyer::inline HOYER_ISA
