package runtime

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxHolderBytes bounds a holder.
const MaxHolderBytes = 200

// ValidateHolder returns INVALID_INPUT for a text that can't be a claim's holder.
func ValidateHolder(holder string) error {
	if holder == "" || len(holder) > MaxHolderBytes || !utf8.ValidString(holder) || strings.ContainsFunc(holder, unicode.IsControl) {
		return Invalid("holder", "must be 1 to %d bytes of UTF-8 without control characters", MaxHolderBytes)
	}
	return nil
}
