/// The version of the library that is loaded, and the wire protocol it speaks.
#pragma once

#include "troupe/runtime/base/version.hpp"
