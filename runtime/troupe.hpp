/// The umbrella: one include for a program that uses troupe. The front door,
/// troupe/runtime/runtime.hpp, explains it.
///
///     #include "troupe/troupe.hpp"
#pragma once

#include "troupe/runtime/runtime.hpp"
