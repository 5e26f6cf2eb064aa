// Package quantity reads times and sizes as people write them, for every flag,
// variable and setting that has one. A bare number has the unit of its flag.
package quantity

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"time"
	"unicode"
)

// ErrRange is returned for a value that is too large for 64 bits, together with the nearest value that fits.
var ErrRange = errors.New("is too large")

// errForm is returned for a text that isn't a quantity.
var errForm = errors.New("isn't one")

// day is the unit d, which time.ParseDuration lacks.
const day = 24 * time.Hour

// Duration reads 90s, 1m, 1h30m, 1.5h, 2d or 1d12h. A bare number is in unit. For a duration out of range it
// returns ErrRange and the largest or smallest duration. For other texts it returns another error.
func Duration(text string, unit time.Duration) (time.Duration, error) {
	unsigned, sign := cutSign(text)
	if digits(unsigned) {
		n, err := decimal(unsigned, int64(unit))
		return time.Duration(sign * n), err
	}
	n, err := withUnits(unsigned)
	return time.Duration(sign * n), err
}

// withUnits reads a duration that has units and no sign, in nanoseconds.
func withUnits(text string) (int64, error) {
	days := int64(0)
	if before, rest, ok := strings.Cut(text, "d"); ok {
		n, err := decimal(before, int64(day))
		if err != nil || rest == "" {
			return n, err
		}
		days, text = n, rest
	}
	if strings.ContainsAny(text, "+-") || strings.IndexFunc(text, unicode.IsLetter) <= 0 {
		return 0, errForm
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && !overflows(text):
		return 0, errForm
	case err != nil || days > math.MaxInt64-int64(d):
		return math.MaxInt64, ErrRange
	}
	return days + int64(d), nil
}

// overflows reports whether a text that time.ParseDuration refuses would be a duration with fewer digits.
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

// Size reads 512M, 512MB, 512MiB or 1.5G: bytes in powers of 1024, as container tools read them. A bare number
// counts units of unit bytes. For a size out of range it returns ErrRange and the largest or smallest size. For
// other texts it returns another error.
func Size(text string, unit int64) (bytes int64, err error) {
	unsigned, sign := cutSign(text)
	number := strings.TrimRightFunc(unsigned, unicode.IsLetter)
	if !digits(unsigned) { // the text has a unit
		var ok bool
		if unit, ok = scaleOf(unsigned[len(number):]); !ok {
			return 0, errForm
		}
	}
	n, err := decimal(number, unit)
	return sign * n, err
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

// cutSign returns a text without its minus sign, and -1 if it had one, else 1.
func cutSign(text string) (unsigned string, sign int64) {
	if unsigned, ok := strings.CutPrefix(text, "-"); ok {
		return unsigned, -1
	}
	return text, 1
}

// decimal returns a decimal number times unit, rounded down. The number has digits, and can have a point between
// them.
func decimal(text string, unit int64) (int64, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if !digits(whole) || point && !digits(fraction) {
		return 0, errForm
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, errForm
	}
	n.Mul(n, new(big.Rat).SetInt64(unit))
	units := new(big.Int).Quo(n.Num(), n.Denom())
	if !units.IsInt64() {
		return math.MaxInt64, ErrRange
	}
	return units.Int64(), nil
}

// digits reports whether a text consists of ASCII digits, at least one.
func digits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}
