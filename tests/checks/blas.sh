#!/usr/bin/env bash
# No algorithm of tune calls a BLAS: OpenBLAS picks its kernels by the CPU, so a suggestion would not be a function of the
# events. Linking one starts a thread, after which zygotes cannot fork. So the binaries link none either.
# usage: blas.sh BUILD_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$1

names='[<"/](cblas|lapacke?|mkl[a-z_]*|openblas[a-z_]*)[^>"]*\.h|troupe/kernels/|\b(cblas|LAPACKE|openblas)_[a-z]|\bd(gemm|gemv|potrf|syevd?|gesv)_?[(]|\bdl(open|sym)[(]'
while IFS=: read -r file line _; do
  offence "$file:$line: reaches a BLAS: compute it in tune, in plain C++"
done < <(sources hpp cpp | grep '^tune/' | tr '\n' '\0' | xargs -0 -r grep -HnE "$names" || true)

count=0
while read -r file; do
  needed=$(readelf -d "$file" 2>/dev/null | grep NEEDED || true)
  [[ -n $needed ]] || continue
  count=$((count + 1))
  if grep -qE 'lib(open)?blas|libcblas|liblapack|libmkl' <<<"$needed"; then offence "$file: links a BLAS"; fi
done < <(find "$build/bin" "$build/lib" -type f 2>/dev/null | sort)
finish "$count binaries"
