package audit

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

func TestClean(t *testing.T) {
	long := strings.Repeat("é", 150)
	for _, test := range []struct {
		name     string
		clean    func(string) string
		in, want string
	}{
		{"word", cleanWord, "claimRunner", "claimRunner"},
		{"no word", cleanWord, "", ""},
		{"enumeration", cleanWord, "FILES_READ", "FILES_READ"},
		{"two words", cleanWord, "a b", malformed},
		{"long word", cleanWord, strings.Repeat("a", 41), malformed},
		{"line", cleanWord, "a\n", malformed},
		{"UUID", cleanID, "0199c1f2-0000-7000-8000-00000000000f", "0199c1f2-0000-7000-8000-00000000000f"},
		{"environment", cleanID, "Python-3-12_with-numpy-and-more-of-that", "#3d47013d6877"},
		{"shorter environment", cleanID, "Python-3.12_with.numpy", "Python-3.12_with.numpy"},
		{"mail", cleanID, "a.b@example.com", "a.b@example.com"},
		{"no id", cleanID, "", ""},
		{"path", cleanID, "/etc/passwd", malformed},
		{"option", cleanID, "-rf", malformed},
		{"name", cleanName, "Team Ä – CI <3", "Team Ä – CI <3"},
		{"control characters", cleanName, "a\x1b[31m\r\nb\x00\u202e\u2028", "a\ufffd[31m\ufffd\ufffdb\ufffd\ufffd\ufffd"},
		{"not UTF-8", cleanName, "a\xff\xfe", "a\ufffd"},
		{"long name", cleanName, long, strings.Repeat("é", 99) + "…"},
		{"UUID in a name", cleanName, "of 0199c1f2-0000-7000-8000-00000000000f", "of 0199c1f2-0000-7000-8000-00000000000f"},
		{"token in a name", cleanName, "Bearer 0123456789abcdef0123456789abcdef x", "Bearer (hidden) x"},
	} {
		if got := test.clean(test.in); got != test.want {
			t.Errorf("%s: %q instead of %q", test.name, got, test.want)
		}
		if got := test.clean(test.clean(test.in)); test.want != malformed && got != test.clean(test.in) {
			t.Errorf("%s: cleaned twice it is %q", test.name, got)
		}
	}
}

// TestTokensLookLikeSecrets makes 10,000 of each form, the same each time. Only those without a
// digit may pass.
func TestTokensLookLikeSecrets(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	for range 10_000 {
		bytes := make([]byte, 32)
		_, _ = random.Read(bytes) // never fails
		for _, token := range []string{
			base64.RawURLEncoding.EncodeToString(bytes), base64.StdEncoding.EncodeToString(bytes), hex.EncodeToString(bytes[:16]), base32.StdEncoding.EncodeToString(bytes[:15]),
		} {
			if !secret(token) && strings.ContainsFunc(token, unicode.IsDigit) {
				t.Fatalf("%s looks like no secret", token)
			}
		}
	}
}

func FuzzName(f *testing.F) {
	f.Add("a\xff\x00 b")
	f.Add(strings.Repeat("\U0010FFFF", 200))
	f.Fuzz(func(t *testing.T, s string) {
		got := cleanName(s)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > mostName || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) && r != unicode.ReplacementChar }) {
			t.Errorf("%q", got)
		}
	})
}

// canaries must not appear in an audit log.
var canaries = map[string]string{
	"token":       "rp_9fK2xQv7LmT4wZ8bN1cR6yHs3jPd5gAe0uVi",
	"header":      "Bearer Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==",
	"hex":         "d41d8cd98f00b204e9800998ecf8427e",
	"JWT":         "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
	"private key": "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----",
	"command":     "curl -u admin:pass https://example.com/?key=value",
	"file":        "#include <stdio.h>\nint main() { return canary(); }",
}

// TestSecretsDoNotAppear puts secrets wherever a caller can. Names for people are free text:
// commands and file names aren't recognized there.
func TestSecretsDoNotAppear(t *testing.T) {
	for kind, canary := range canaries {
		dir := t.TempDir()
		s, err := store.Open(t.Context(), filepath.Join(dir, "db"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l := newLog(t, Config{Store: s, Lines: filepath.Join(dir, "lines")})
		stop := start(t, l)
		name := "prefix " + canary
		if kind == "command" || kind == "file" {
			name = ""
		}
		tenant := runtime.TenantID(canary)
		if kind == "hex" { // which is a good name for one
			tenant = "a"
		}
		entry := Entry{
			ID: canary, At: time.Unix(0, 0), Tenant: tenant, Actor: Actor{ActorKind(canary), canary, name}, Role: canary, Action: canary,
			ObjectKind: canary, ObjectID: canary, Address: netip.MustParseAddr("fe80::1").WithZone(canary), Outcome: Outcome(canary),
			Detail: []Detail{Words("words", []runtime.Outcome{runtime.Outcome(canary)}), Ref("ref", runtime.RunnerID(canary)), Time(canary, time.Now()), {}},
		}
		l.Append(entry)
		entry.Outcome = OutcomeOf(t.Context(), runtime.Wrap(runtime.CodeInternal, runtime.Errorf(runtime.CodeFileError, "%s", canary), "%s", canary))
		l.Append(entry)
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows, _, err := s.Audit(t.Context(), Filter{}, 9, "")
		if err != nil || len(rows) != 2 {
			t.Fatal(rows, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		all := readFile(t, filepath.Join(dir, "lines"))
		for _, r := range rows {
			all += string(r.Value) + " " + strings.Join([]string{r.ID, string(r.Tenant), r.Actor, r.Action, r.Object}, " ")
		}
		for _, piece := range strings.FieldsFunc(canary, func(r rune) bool { return strings.ContainsRune(" \n:.", r) }) {
			if len(piece) > 7 && !strings.Contains(piece, "-----") && strings.Contains(all, piece) {
				t.Errorf("%s: %s is in %s", kind, piece, all)
			}
		}
	}
}

// TestEntriesAreBounded puts oversized values into entries.
func TestEntriesAreBounded(t *testing.T) {
	much := strings.Repeat("<", 1<<20)
	e := Entry{Tenant: runtime.TenantID(much), Actor: Actor{Token, much, much}, Role: much, Action: much, ObjectKind: much, ObjectID: much}
	for i := range 1000 {
		e.Detail = append(e.Detail, Time(fmt.Sprint("a", i), time.Now()), Time(strings.Repeat("a", 40), time.Now()), Words("a", slices.Repeat([]runtime.Outcome{runtime.Outcome(much)}, 100)))
	}
	e = e.clean()
	r, err := e.row()
	if err != nil || len(r.Value) > 2000 {
		t.Error(len(r.Value), err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLinesCannotBeForged checks that an entry is one line whatever names it contains, and that a
// terminal displays it verbatim and executes nothing in it.
func TestLinesCannotBeForged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	l := newLog(t, Config{Store: &memory{}, Lines: path})
	stop := start(t, l)
	const evil = "<script>\u202etxt\u2066\u200b\u2028\u009b2J\x7f\x1b[2J\r\n{\ufeff\U000e0041\xff é"
	l.Append(Entry{
		Tenant: evil, Actor: Actor{Token, evil, evil}, Role: evil, Action: evil, ObjectKind: evil, ObjectID: evil,
		Detail: []Detail{Words("a", []runtime.Outcome{evil}), Ref("b", runtime.RunnerID(evil)), Words(evil, []runtime.Outcome{"c"})},
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	text := readFile(t, path)
	line, rest, _ := strings.Cut(text, "\n")
	if rest != "" || !strings.Contains(line, "é") || strings.Contains(line, "<script>") {
		t.Errorf("%q", text)
	}
	if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q has %q", line, line[i:])
	}
}
