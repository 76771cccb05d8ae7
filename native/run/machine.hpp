// What the machine and its system offer to this process. Shared by all instruction sets: declarations only; see
// machine.cpp.
#pragma once

#include <cstddef>

namespace hoyer {

// The processors that this process may keep busy: those that it may run on, at the time of the call, and no more than
// its control groups give it time for.
std::size_t processors();

// Bytes of the last-level cache.
std::size_t last_level_cache();

// The instructions that processor and system let us use.
enum class Instructions { baseline, avx2, avx512 };
Instructions instructions();

// Has a forked child call `in_child` before anything else. Nothing happens on systems that do not fork.
void after_fork(void (*in_child)());

// Asks for large pages under memory that is about to be written for the first time: most of the time that a page fault
// takes is spent once per page. Nothing happens where there are none.
void use_large_pages(void* memory, std::size_t bytes);

}  // namespace hoyer
