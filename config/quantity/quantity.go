// Package quantity reads times and sizes as people write them, for every flag,
// variable and setting that has one. A bare number has the unit of its flag.
package quantity

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ErrRange says that a value is too large for 64 bits. The value beside it is the
// nearest one that isn't.
var ErrRange = errors.New("is too large")

// errForm says that a text is no quantity.
var errForm = errors.New("isn't one")

const day = 24 * time.Hour

// Duration reads 90s, 1m, 1h30m, 1.5h, 2d or 1d12h; a bare number is in unit. It
// returns ErrRange beside the largest or least duration, and another error for
// anything else.
func Duration(text string, unit time.Duration) (time.Duration, error) {
	if n, err := bare(text); !errors.Is(err, errForm) {
		value, err := times(n, int64(unit), err)
		return time.Duration(value), err
	}
	unsigned, sign := strings.TrimPrefix(text, "-"), int64(1)
	if unsigned != text {
		sign = -1
	}
	if strings.ContainsFunc(unsigned, func(r rune) bool { return r == '-' || r == '+' }) {
		return 0, errForm
	}
	days, rest := int64(0), unsigned
	if before, after, ok := strings.Cut(unsigned, "d"); ok {
		n, err := decimal(before)
		if errors.Is(err, errForm) {
			return 0, errForm
		}
		if days, err = times(n, int64(day), err); err != nil {
			return time.Duration(saturated(sign)), ErrRange
		}
		if rest = after; rest == "" {
			return time.Duration(sign * days), nil
		}
	}
	if strings.IndexFunc(rest, unicode.IsLetter) <= 0 {
		return 0, errForm
	}
	d, err := time.ParseDuration(rest)
	if err != nil && !overflows(rest) {
		return 0, errForm
	}
	if err != nil || days > math.MaxInt64-int64(d) {
		return time.Duration(saturated(sign)), ErrRange
	}
	return time.Duration(sign * (days + int64(d))), nil
}

// overflows reports whether a text that time.ParseDuration refuses would be one
// with fewer digits.
func overflows(text string) bool {
	var short strings.Builder
	digits := 0
	for _, r := range text {
		if unicode.IsDigit(r) {
			if digits++; digits > 1 {
				continue
			}
		} else {
			digits = 0
		}
		short.WriteRune(r)
	}
	_, err := time.ParseDuration(short.String())
	return err == nil
}

// Size reads 512M, 512MB, 512MiB or 1G: bytes by powers of 1024, as containers' tools
// read them. A bare number is in unit, which is of bytes. It returns ErrRange beside the largest or
// least size, and another error for anything else.
func Size(text string, unit int64) (bytes int64, err error) {
	if n, err := bare(text); !errors.Is(err, errForm) {
		return times(n, unit, err)
	}
	digits := strings.TrimRightFunc(text, unicode.IsLetter)
	unsigned, sign := strings.TrimPrefix(digits, "-"), int64(1)
	if unsigned != digits {
		sign = -1
	}
	scale, ok := scaleOf(text[len(digits):])
	n, err := decimal(unsigned)
	if !ok || errors.Is(err, errForm) {
		return 0, errForm
	}
	return times(sign*n, scale, err)
}

// scaleOf returns the bytes of a unit, in any case: B, or one of K to P, alone or with B or iB.
func scaleOf(unit string) (int64, bool) {
	unit = strings.ToUpper(unit)
	if unit == "B" {
		return 1, true
	}
	prefix := strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I")
	power := strings.Index("KMGTP", prefix)
	if len(prefix) != 1 || power < 0 || unit == prefix+"I" {
		return 0, false
	}
	return 1 << (10 * (power + 1)), true
}

// bare reads a number without a unit, as Go writes integers.
func bare(text string) (int64, error) { return number(strconv.ParseInt(text, 0, 64)) }

// decimal reads digits alone.
func decimal(text string) (int64, error) {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, errForm
	}
	return number(strconv.ParseInt(text, 10, 64))
}

func number(n int64, err error) (int64, error) {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return n, ErrRange
	case err != nil:
		return 0, errForm
	}
	return n, nil
}

// times returns n units, or ErrRange, which err may be already.
func times(n, unit int64, err error) (int64, error) {
	if err != nil || n > math.MaxInt64/unit || n < -(math.MaxInt64/unit) {
		return saturated(n), ErrRange
	}
	return n * unit, nil
}

func saturated(sign int64) int64 {
	if sign < 0 {
		return -math.MaxInt64
	}
	return math.MaxInt64
}
