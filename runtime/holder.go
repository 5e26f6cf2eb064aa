package runtime

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxHolderBytes bounds the name of a claim's holder.
const MaxHolderBytes = 200

// ValidateHolder returns INVALID_INPUT for a text that can't be the name of a claim's holder.
func ValidateHolder(holder string) error {
	if holder == "" || len(holder) > MaxHolderBytes || !utf8.ValidString(holder) || strings.ContainsFunc(holder, unicode.IsControl) {
		return Invalid("holder", "must be 1 to %d bytes of UTF-8 without control characters", MaxHolderBytes)
	}
	return nil
}
