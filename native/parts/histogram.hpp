// Algorithm 1 for a vector that lies in parts, in the form of a histogram.
//
// Floats are ordered like integers, their keys, and a bin takes 2^width neighbouring ones, none of which lie on both
// sides of a power of two. So within a bin entries are an integer r times one step above its lower end, and the count,
// the sum of r and the sum of its squares tell everything that a search for alpha needs. These are integers: parts add
// up to the same numbers however a vector is divided.
#pragma once

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

constexpr std::size_t block_entries = 4096;

// Calls f(entries, count, position of the first) for a vector, a block at a time; false if that was interrupted.
template <class E, class F> bool for_each_block(const Batch& x, bool (*go_on)(), F f) {
    const std::size_t n = x.length();
    // Vectors that are not contiguous are copied as a whole.
    const std::size_t size = x.contiguous(sizeof(E)) ? std::min(n, block_entries) : n;
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

// What a bin has: the sums of r and of its squares, of 2^22 entries at most before they are added to the table.
template <class Number> struct Bin {
    static constexpr int widest = sizeof(Number) == 8 ? 20 : widest_bin;
    static constexpr std::size_t most = std::size_t{1} << 22;
    std::int64_t count = 0;
    Number sum = 0, squares = 0;
};

// Adds a number to limbs of 32 bits, one for every bin in a row; the last limb takes all that is left.
template <class Number> void add_limbs(std::int64_t* to, std::size_t limbs, Number number) {
    for (std::size_t i = 0; i < limbs; ++i, number >>= limb_bits)
        to[i * bin_count] += static_cast<std::int64_t>(i + 1 < limbs ? number & 0xffffffff : number);
}

template <class Number> void flush(std::vector<Bin<Number>>& bins, int width, std::int64_t* table) {
    const std::size_t limbs = limbs_for(width);
    for (std::size_t i = 0; i < bin_count; ++i) {
        const Bin<Number> bin = std::exchange(bins[i], {});
        table[i] += bin.count;
        add_limbs(table + bin_count + i, limbs, bin.sum);
        add_limbs(table + (1 + limbs) * bin_count + i, limbs_for(2 * width), bin.squares);
    }
}

// How many entries are not finite, and how many are zero.
struct SpecialEntries {
    std::int64_t not_finite = 0, zeros = 0;
};
template <class T> SpecialEntries special_entries(const T* x, std::size_t n) {
    SpecialEntries found;
    for (std::size_t i = 0; i < n; ++i) {
        found.not_finite += !(size_bits(x[i]) < infinity_bits<T>);
        found.zeros += x[i] == 0;
    }
    return found;
}

// What is not finite may be in some bin as well: then nobody asks for the bins.
template <bool Signed, class T, class Number>
void add_entries(const T* x, std::size_t n, std::int64_t first_bin, int width, Bin<Number>* bins) {
    const std::int64_t mask = (std::int64_t{1} << width) - 1;
    for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t key = key_of<Signed>(x[i]);
        const auto number = static_cast<std::uint64_t>((key >> width) - first_bin);
        if (number >= bin_count) continue;
        const auto rest = static_cast<std::uint64_t>(key & mask);
        Bin<Number>& bin = bins[number];
        bin.count += 1;
        bin.sum += rest;
        bin.squares += static_cast<Number>(rest) * rest;
    }
}

template <class E, bool Signed, class Number> bool fill_histogram(const HistogramJob& job, bool (*go_on)()) {
    std::vector<Bin<Number>> bins(bin_count);
    std::size_t held = 0;
    const bool done = for_each_block<E>(job.x, go_on, [&](const Compute<E>* x, std::size_t n, std::size_t) {
        for (std::size_t i = 0; i < n; i += block_entries) {
            const std::size_t size = std::min(block_entries, n - i);
            const SpecialEntries special = special_entries(x + i, size);
            job.out[0] += special.not_finite;
            job.out[1] += special.zeros;
            add_entries<Signed>(x + i, size, job.lower >> job.width, job.width, bins.data());
            held += size;
            if (held + block_entries <= Bin<Number>::most) continue;
            flush(bins, job.width, job.out + 2);
            held = 0;
        }
    });
    flush(bins, job.width, job.out + 2);
    return done;
}

template <class E, bool Signed> std::int64_t histogram(const HistogramJob& job, bool (*go_on)()) {
    const bool narrow = job.width <= Bin<std::uint64_t>::widest;
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
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
    std::int64_t below = none, place = none;
    const bool done = for_each_block<E>(job.x, go_on, [&](const Compute<E>* x, std::size_t n, std::size_t begin) {
        const std::int64_t wanted = job.lower;
        std::int64_t largest = none, matches = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const std::int64_t key = key_of<Signed>(x[i]);
            largest = std::max(largest, key < wanted ? key : none);
            matches += key == wanted;
        }
        below = std::max(below, largest);
        for (std::size_t i = 0; matches && place == none; ++i)
            if (key_of<Signed>(x[i]) == wanted) place = -(offset + static_cast<std::int64_t>(begin + i));
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
