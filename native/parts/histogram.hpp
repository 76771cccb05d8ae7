// Algorithm 1 for a vector that lies in parts, in the form of a histogram.
//
// Floats are ordered like integers, their keys, and a bin takes 2^width neighbouring ones, none of which lie on both
// sides of a power of two. So within a bin entries are an integer r times one step above its lower end, and the count,
// the sum of r and the sum of its squares tell everything that a search for alpha needs. These are integers: parts add
// up to the same numbers however a vector is divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "jobs.hpp"
#include "run/layout.hpp"
#include "simd/registers.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

// The bits of a float's size, with its sign: integers in the order of the floats, and 0 for both zeros.
template <bool Signed, class T> HOYER_INLINE std::int64_t key_of(T x) {
    const auto size = static_cast<std::int64_t>(size_bits(x));
    return !Signed && x < 0 ? -size : size;
}
template <class T> HOYER_INLINE bool is_finite(T x) { return size_bits(x) < infinity_bits<T>; }

// Calls f(entries, count, position of the first) for a vector, a block at a time; false if that was interrupted.
template <class E, class F> bool for_each_block(const Batch& x, bool (*go_on)(), F f) {
    const std::size_t n = x.length();
    // Vectors that are not contiguous are copied as a whole.
    const std::size_t size = x.contiguous(sizeof(E)) ? std::min<std::size_t>(n, 4096) : n;
    const auto run = [&](const Batch& blocks, std::size_t begin) {
        Reader<E> reader(blocks);
        for (std::size_t i = 0; i < blocks.rows(); ++i, begin += blocks.length()) {
            f(reader.read(i), blocks.length(), begin);
            if (i % 1024 == 1023 && !go_on()) return false;
        }
        return true;
    };
    if (n == 0) return true;
    if (size == n) return run(x, 0);
    const std::size_t rest = n % size;
    return run(Batch::contiguous(x.row(0), n / size, size, sizeof(E)), 0) &&
           (rest == 0 || run(Batch::contiguous(x.row(0) + (n - rest) * sizeof(E), 1, rest, sizeof(E)), n - rest));
}

// What a bin has: sums of integers below 2^width.
template <class Total> struct Bin {
    std::uint64_t count = 0;
    Total first = 0, second = 0;
};

// Adds a number to limbs of 32 bits, one for every bin in a row; the last limb takes all that is left.
template <class Total> void add_limbs(std::int64_t* to, std::size_t limbs, Total number) {
    for (std::size_t i = 0; i < limbs; ++i, number >>= limb_bits)
        to[i * bin_count] += static_cast<std::int64_t>(i + 1 < limbs ? number & 0xffffffff : number);
}

template <class Total> void flush(std::vector<Bin<Total>>& bins, int width, std::int64_t* table) {
    const std::size_t firsts = limbs_for(width), seconds = limbs_for(2 * width);
    for (std::size_t i = 0; i < bin_count; ++i) {
        table[i] += static_cast<std::int64_t>(bins[i].count);
        add_limbs(table + bin_count + i, firsts, bins[i].first);
        add_limbs(table + (1 + firsts) * bin_count + i, seconds, bins[i].second);
        bins[i] = {};
    }
}

// Total: holds 2^22 squares of numbers below 2^width.
template <class E, bool Signed, class Total> bool fill_histogram(const HistogramJob& job, bool (*go_on)()) {
    constexpr std::size_t most = std::size_t{1} << 22;
    const std::int64_t first_bin = job.lower >> job.width, mask = (std::int64_t{1} << job.width) - 1;
    std::vector<Bin<Total>> bins(bin_count);
    std::int64_t not_finite = 0, zeros = 0, *const table = job.out + 2;
    std::size_t held = 0;
    const auto add = [&](const Compute<E>* x, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            const std::int64_t key = key_of<Signed>(x[i]);
            const auto bin = static_cast<std::uint64_t>((key >> job.width) - first_bin);
            not_finite += !is_finite(x[i]);
            zeros += key == 0;
            // What is not finite may be in some bin as well: then nobody asks for the bins.
            if (bin >= bin_count) continue;
            const auto rest = static_cast<std::uint64_t>(key & mask);
            Bin<Total>& to = bins[bin];
            to.count += 1;
            to.first += rest;
            to.second += static_cast<Total>(rest) * rest;
        }
        held += n;
    };
    const bool done = for_each_block<E>(job.x, go_on, [&](const Compute<E>* x, std::size_t n, std::size_t) {
        for (std::size_t i = 0; i < n; i += most) {
            const std::size_t size = std::min(most, n - i);
            if (held + size > most) {
                flush(bins, job.width, table);
                held = 0;
            }
            add(x + i, size);
        }
    });
    flush(bins, job.width, table);
    job.out[0] += not_finite;
    job.out[1] += zeros;
    return done;
}

template <class E, bool Signed> std::int64_t histogram(const HistogramJob& job, bool (*go_on)()) {
    const bool narrow = job.width <= 20;
    const bool done = narrow ? fill_histogram<E, Signed, std::uint64_t>(job, go_on)
                             : fill_histogram<E, Signed, unsigned __int128>(job, go_on);
    return done ? all_good : interrupted;
}

// The keys of all entries in one bin.
template <class E, bool Signed>
std::int64_t gather(const HistogramJob& job, std::vector<std::int64_t>& keys, bool (*go_on)()) {
    const std::int64_t wanted = job.lower >> job.width;
    const bool done = for_each_block<E>(job.x, go_on, [&](const Compute<E>* x, std::size_t n, std::size_t) {
        for (std::size_t i = 0; i < n; ++i)
            if (const std::int64_t key = key_of<Signed>(x[i]); key >> job.width == wanted) keys.push_back(key);
    });
    return done ? all_good : interrupted;
}

// Of the entries below a key the largest key, and the place of the first entry with this key, negated: of both the
// larger one holds for two parts together. The least integer if there is none.
template <class E, bool Signed> std::int64_t neighbours(const HistogramJob& job, std::int64_t offset, bool (*go_on)()) {
    std::int64_t below = std::numeric_limits<std::int64_t>::min(), place = below;
    const bool done = for_each_block<E>(job.x, go_on, [&](const Compute<E>* x, std::size_t n, std::size_t begin) {
        for (std::size_t i = n; i-- > 0;) {
            const std::int64_t key = key_of<Signed>(x[i]);
            if (key < job.lower) below = std::max(below, key);
            if (key == job.lower) place = std::max(place, -(offset + static_cast<std::int64_t>(begin + i)));
        }
    });
    job.out[0] = below;
    job.out[1] = place;
    return done ? all_good : interrupted;
}

// The results of a part's entries. The one at `place` is the first of tied ones; -1: it lies elsewhere, or is as all.
template <class E, bool Signed>
void write_by(const Formula& formula, const Batch& x, const Batch& out, std::int64_t place) {
    using T = Compute<E>;
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
    writer.finish(0);
}

}  // namespace hoyer::inline HOYER_ISA
