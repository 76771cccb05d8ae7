// How arrays and options of Python reach the core: buffers at any strides, axes in any place, plans made before.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "binding/plan.hpp"

namespace hoyer {

// Which axes of an array form a vector, in ascending order.
class VectorAxes {
public:
    // Nothing for anything but None, an int or a tuple of ints that name axes which are there, once.
    static std::optional<VectorAxes> named(PyObject* axis, int ndim) {
        VectorAxes axes;
        axes.ndim_ = ndim;
        if (axis == Py_None) {
            std::fill_n(axes.inner_.begin(), ndim, true);
            axes.count_ = ndim;
        } else if (PyTuple_CheckExact(axis)) {
            for (Py_ssize_t i = 0; i < PyTuple_Size(axis); ++i)
                if (!axes.add(PyTuple_GetItem(axis, i))) return {};
        } else if (!axes.add(axis)) {
            return {};
        }
        return axes.count_ > 0 ? std::optional(axes) : std::nullopt;
    }

    int count() const { return count_; }
    bool has(int axis) const { return inner_[static_cast<std::size_t>(axis)]; }

    nb::tuple as_tuple() const {
        nb::list axes;
        for (int i = 0; i < ndim_; ++i)
            if (has(i)) axes.append(i);
        return nb::tuple(axes);
    }

private:
    bool add(PyObject* number) {
        if (!PyLong_CheckExact(number)) return false;
        const long given = PyLong_AsLong(number);
        if (PyErr_Occurred()) {
            PyErr_Clear();  // an integer that does not fit
            return false;
        }
        const long axis = given < 0 ? given + ndim_ : given;
        if (axis < 0 || axis >= ndim_ || inner_[static_cast<std::size_t>(axis)]) return false;
        ++count_;
        return inner_[static_cast<std::size_t>(axis)] = true;
    }

    int ndim_ = 0, count_ = 0;
    std::array<bool, 64> inner_{};
};

// A buffer of an array, given back in the end.
class ArrayBuffer {
public:
    // `known`: what the entries are, in this machine's order of bytes. It takes time to write that down and read it.
    ArrayBuffer(PyObject* array, bool writable, std::optional<Element> known = {}) : known_(known) {
        const int flags = PyBUF_STRIDES | (known ? 0 : PyBUF_FORMAT) | (writable ? PyBUF_WRITABLE : 0);
        held_ = PyObject_GetBuffer(array, &view_, flags) == 0;
        if (!held_) PyErr_Clear();
    }
    ArrayBuffer(const ArrayBuffer&) = delete;
    ~ArrayBuffer() {
        if (held_) PyBuffer_Release(&view_);
    }

    // What the entries are, if a typed pointer reaches them all.
    std::optional<Element> element() const {
        if (!held_ || view_.ndim < 1 || view_.ndim > 64) return {};
        if (reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::uintptr_t>(view_.itemsize)) return {};
        for (int i = 0; i < view_.ndim; ++i)
            if (view_.strides[i] % view_.itemsize) return {};
        if (known_) return known_;
        if (!view_.format) return {};
        const char* format = view_.format + (swapped() ? 1 : 0);
        if (format[0] == '\0' || format[1] != '\0') return {};
        const std::size_t known = std::string_view("efd").find(format[0]);
        return known < 3 ? std::optional(static_cast<Element>(known)) : std::nullopt;
    }
    // Whether the bytes are in foreign order.
    bool swapped() const {
        return view_.format && view_.format[0] == (std::endian::native == std::endian::little ? '>' : '<');
    }
    int ndim() const { return view_.ndim; }
    std::size_t size() const { return static_cast<std::size_t>(view_.len / view_.itemsize); }
    std::size_t length(const VectorAxes& axes) const {
        std::size_t entries = 1;
        for (int i = 0; i < view_.ndim; ++i)
            if (axes.has(i)) entries *= static_cast<std::size_t>(view_.shape[i]);
        return entries;
    }
    nb::tuple batch_shape(const VectorAxes& axes) const {
        nb::list sizes;
        for (int i = 0; i < view_.ndim; ++i)
            if (!axes.has(i)) sizes.append(view_.shape[i]);
        return nb::tuple(sizes);
    }
    // The axes of the vectors last.
    Batch batch(const VectorAxes& axes) const {
        std::array<std::int64_t, 64> shape, strides;
        std::size_t place = 0;
        for (const bool inner : {false, true}) {
            for (int i = 0; i < view_.ndim; ++i) {
                if (axes.has(i) != inner) continue;
                shape[place] = view_.shape[i];
                strides[place++] = view_.strides[i] / view_.itemsize;
            }
        }
        return {view_.buf,    place,          static_cast<std::size_t>(axes.count()),
                shape.data(), strides.data(), static_cast<std::size_t>(view_.itemsize),
                swapped()};
    }
    bool same_shape(const ArrayBuffer& other) const {
        return view_.ndim == other.view_.ndim && std::equal(view_.shape, view_.shape + view_.ndim, other.view_.shape);
    }
    bool same_memory(const ArrayBuffer& other) const {
        return view_.buf == other.view_.buf &&
               std::equal(view_.strides, view_.strides + view_.ndim, other.view_.strides);
    }
    bool overlaps(const ArrayBuffer& other) const {
        const auto [low, high] = span();
        const auto [other_low, other_high] = other.span();
        return low < other_high && other_low < high;
    }
    // Whether entries follow each other in the order of the axes: then none share memory.
    bool contiguous() const {
        Py_ssize_t wanted = view_.itemsize;
        for (int i = view_.ndim; i-- > 0;) {
            if (view_.shape[i] > 1 && view_.strides[i] != wanted) return false;
            wanted *= view_.shape[i];
        }
        return true;
    }

private:
    // From the first byte to behind the last one.
    std::pair<const char*, const char*> span() const {
        const char *low = static_cast<const char*>(view_.buf), *high = low + view_.itemsize;
        for (int i = 0; i < view_.ndim; ++i) {
            if (view_.shape[i] == 0) return {low, low};
            (view_.strides[i] < 0 ? low : high) += view_.strides[i] * (view_.shape[i] - 1);
        }
        return {low, high};
    }

    Py_buffer view_{};
    std::optional<Element> known_;
    bool held_ = false;
};

// The fields of Python's Options, in order; a test compares them.
constexpr const char* option_fields[] = {"sparseness",    "l1",     "l2",           "axis",    "nonnegative",
                                         "only_increase", "solver", "check_finite", "at_most", "where"};
constexpr std::ptrdiff_t field(std::string_view name) {
    return std::find(std::begin(option_fields), std::end(option_fields), name) - std::begin(option_fields);
}

// Those of a tuple that has them in this order, which whoever calls holds.
class AskedOptions {
public:
    explicit AskedOptions(const nb::tuple& options) : tuple_(options) {
        require(options.size() == size, "options are those of hoyer.options.Options");
    }

    static constexpr std::size_t size = std::size(option_fields);
    nb::handle operator[](std::size_t i) const { return NB_TUPLE_GET_ITEM(tuple_.ptr(), static_cast<Py_ssize_t>(i)); }
    nb::handle operator[](std::string_view name) const { return (*this)[static_cast<std::size_t>(field(name))]; }
    nb::handle as_tuple() const { return tuple_; }

private:
    nb::handle tuple_;
};

// Whether options are plain words and numbers, so that equal ones ask for the same. (1 and True are equal, too.)
inline bool is_plain(const AskedOptions& options) {
    for (const auto name : {"sparseness", "l1", "l2"}) {
        PyObject* target = options[name].ptr();
        if (target != Py_None && !PyFloat_CheckExact(target) && !PyLong_CheckExact(target) &&
            !PyUnicode_CheckExact(target))
            return false;
    }
    for (const auto name : {"nonnegative", "only_increase", "check_finite", "at_most"})
        if (!PyBool_Check(options[name].ptr())) return false;
    return options["where"].is_none() && PyUnicode_CheckExact(options["solver"].ptr());
}

// The core's forms of plans that were found lately, by the very objects that the options were: most calls are like the
// one before. Only for plain options, which cannot change; what is held lives as long as the process.
class RecentPlans {
public:
    // Nothing if there is none.
    nb::object find(const AskedOptions& options, std::size_t n) {
        const nb::ft_lock_guard lock(mutex_);
        const Found& found = slot(options, n);
        if (found.n != n || !found.plan.is_valid()) return {};
        for (std::size_t i = 0; i < AskedOptions::size; ++i)
            if (!found.options[i].is(options[i])) return {};
        return found.plan;
    }
    void keep(const AskedOptions& options, std::size_t n, const nb::object& plan) {
        Found found{{}, n, plan};
        for (std::size_t i = 0; i < AskedOptions::size; ++i) found.options[i] = nb::borrow(options[i]);
        // What was there before goes once the lock is free: that may run other code.
        const nb::ft_lock_guard lock(mutex_);
        std::swap(found, slot(options, n));
    }

private:
    static constexpr std::size_t slots = 16;
    struct Found {
        std::array<nb::object, AskedOptions::size> options;
        std::size_t n = 0;
        nb::object plan;
    };

    Found& slot(const AskedOptions& options, std::size_t n) {
        std::size_t mixed = n;
        for (const std::size_t i : {0, 1, 2})
            mixed = 31 * mixed + reinterpret_cast<std::uintptr_t>(options[i].ptr()) / 16;
        return found_[mixed % slots];
    }

    std::array<Found, slots> found_;
    nb::ft_mutex mutex_;
};

// What a dictionary has; nothing if it does not have it. (Held at once: without a GIL others may take it out.)
inline nb::object item_of(PyObject* dictionary, PyObject* key) {
#if defined(Py_GIL_DISABLED)
    PyObject* found = nullptr;
    const bool failed = PyDict_GetItemRef(dictionary, key, &found) < 0;
    nb::object item = nb::steal(found);
#else
    nb::object item = nb::borrow(PyDict_GetItemWithError(dictionary, key));
    const bool failed = !item.is_valid();
#endif
    if (failed) PyErr_Clear();
    return item;
}

// The core's form of a plan made before; none if there is no such. `plans` is that of hoyer.plan: options -> length ->
// plan. (To look there takes as long as to project ten numbers.)
inline nb::object known_plan(PyObject* plans, const AskedOptions& options, std::size_t n) {
    static RecentPlans& recent = *new RecentPlans;  // never destroyed: Python may be gone by then
    static PyObject* const forms_name = PyUnicode_InternFromString("forms");
    static PyObject* const core_name = PyUnicode_InternFromString("core");
    if (nb::object plan = recent.find(options, n); plan.is_valid()) return plan;
    if (!is_plain(options)) return {};
    const nb::object by_length = item_of(plans, options.as_tuple().ptr());
    if (!by_length.is_valid()) return {};
    const nb::object length = nb::steal(PyLong_FromSize_t(n));
    const nb::object plan = item_of(by_length.ptr(), length.ptr());
    if (!plan.is_valid()) return {};
    const nb::object forms = nb::steal(PyObject_GetAttr(plan.ptr(), forms_name));
    const nb::object found = item_of(forms.ptr(), core_name);
    if (found.is_valid()) recent.keep(options, n, found);
    return found;
}

}  // namespace hoyer
