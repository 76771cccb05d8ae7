// The projection onto the simplex by an online search for the shift (Condat 2016, Mathematical
// Programming 158): entries are read once, while a list of those that may be in the support and a
// lower bound of the shift grow together. Entries that a new one outweighs wait, and get a second
// chance at the end. For the benchmark: one thread, row by row, as it would be written by hand.

#include <cstddef>

namespace {

// The shift of the entries y[0..n) for the sum l1; `list` has room for n of them.
double shift_of(const float *y, std::ptrdiff_t n, double l1, float *list) {
    // list[0..first) waits, list[first..last) is in play.
    std::ptrdiff_t first = 0, last = 1;
    list[0] = y[0];
    double shift = y[0] - l1;
    for (std::ptrdiff_t i = 1; i < n; ++i) {
        const double entry = y[i];
        if (entry <= shift) {
            continue;
        }
        shift += (entry - shift) / static_cast<double>(last - first + 1);
        if (shift <= entry - l1) {
            // Alone it outweighs all the others.
            first = last;
            shift = entry - l1;
        }
        list[last++] = y[i];
    }
    // Those that wait come after the others, in the same place: what is put back is read before.
    std::ptrdiff_t size = last - first;
    for (std::ptrdiff_t i = first; i-- > 0;) {
        const float entry = list[i];
        if (entry > shift) {
            list[--first] = entry;
            shift += (entry - shift) / static_cast<double>(++size);
        }
    }
    float *kept = list + first;
    for (std::ptrdiff_t before = size + 1; before != size;) {
        before = size;
        std::ptrdiff_t left = 0, count = size;
        for (std::ptrdiff_t i = 0; i < before; ++i) {
            const float entry = kept[i];
            if (entry > shift) {
                kept[left++] = entry;
            } else {
                shift += (shift - entry) / static_cast<double>(--count);
            }
        }
        size = left;
    }
    return shift;
}

}  // namespace

extern "C" void condat(float *out, const float *x, std::ptrdiff_t rows, std::ptrdiff_t n, double l1,
                       float *list) {
    for (std::ptrdiff_t row = 0; row < rows; ++row, x += n, out += n) {
        const auto shift = static_cast<float>(shift_of(x, n, l1, list));
        for (std::ptrdiff_t i = 0; i < n; ++i) {
            const float above = x[i] - shift;
            out[i] = above > 0 ? above : 0;
        }
    }
}
