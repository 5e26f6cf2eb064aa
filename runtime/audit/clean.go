package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/rockpool/rockpool/runtime"
)

const (
	malformed = "(malformed)" // replaces a value that doesn't have its field's form
	hidden    = "(hidden)"    // replaces a word of a name that looks like a secret

	mostName = 100 // characters of a name
)

var (
	// Names of codes, states and settings.
	words = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,39}$`)
	// IDs, addresses and versions.
	ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

	digests = regexp.MustCompile(`^#[0-9a-f]{12}$`) // of cleanID

	// Tokens and keys in hex, base64 and base64url contain such runs.
	runs     = regexp.MustCompile(`[A-Za-z0-9]{16,}`)
	longRuns = regexp.MustCompile(`[A-Za-z0-9_+/=-]{32,}`)
)

// cleanWord returns s if it has the form of a word, such as the name of an operation or a role, or
// malformed.
func cleanWord(s string) string {
	if s == "" || words.MatchString(s) && !secret(s) {
		return s
	}
	return malformed
}

// cleanID returns s if it has the form of an id, or malformed. For an id that looks like a secret
// it returns the beginning of its digest, which is always the same.
func cleanID(s string) string {
	switch {
	case s == "" || digests.MatchString(s):
		return s
	case !ids.MatchString(s):
		return malformed
	case secret(s):
		sum := sha256.Sum256([]byte(s))
		return "#" + hex.EncodeToString(sum[:6])
	default:
		return s
	}
}

// cleanTenant returns a tenant whose name is valid, or malformed. It keeps names that look like secrets,
// because the tenant decides which entries a caller sees.
func cleanTenant(id runtime.TenantID) runtime.TenantID {
	if id == runtime.DefaultTenant || id == WholeServer {
		return id
	}
	if _, err := runtime.ParseTenant("", string(id)); err != nil {
		return malformed
	}
	return id
}

// cleanName returns a name for people. It replaces unprintable characters and words that look like
// secrets, and cuts the name to mostName characters.
func cleanName(s string) string {
	s = s[:min(len(s), 64*mostName)]
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	all := strings.Split(s, " ")
	for i, word := range all {
		if secret(word) {
			all[i] = hidden
		}
	}
	s = strings.Join(all, " ")
	if runes := []rune(s); len(runes) > mostName {
		s = string(runes[:mostName-1]) + "…"
	}
	return s
}

// secret reports whether a text looks like a token, a key or a digest. That means 16 letters and
// digits in a row, or 32 characters of base64 with letters of both cases and digits. A UUID has
// neither.
func secret(s string) bool {
	for _, run := range runs.FindAllString(s, -1) {
		if strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsLetter) {
			return true
		}
	}
	for _, run := range longRuns.FindAllString(s, -1) {
		if strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsUpper) && strings.ContainsFunc(run, unicode.IsLower) {
			return true
		}
	}
	return false
}

// sortDetails sorts by name. Details with the same name keep their order.
func sortDetails(all []Detail) {
	slices.SortStableFunc(all, func(a, b Detail) int { return cmp.Compare(a.name, b.name) })
}
