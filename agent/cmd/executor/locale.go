package executor

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// defaultLocale is the server's default for LANG, which musl has always, and glibc as files.
const defaultLocale = "LANG=C.UTF-8"

// withoutMissingLocale returns a command's variables without the default locale if this root lacks it.
// Otherwise perl and bash warn on stderr. Defaults are the names of the server's defaults.
func (e *executor) withoutMissingLocale(env, defaults []string) []string {
	if !slices.Contains(defaults, "LANG") || !e.lacksLocale() {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return v == defaultLocale })
}

// lacksLocale reports whether a root has glibc in its usual place, and not the locale C.UTF-8.
func lacksLocale(root string) bool {
	if glibc, _ := filepath.Glob(root + "/lib*/ld-linux*"); len(glibc) == 0 {
		return false
	}
	const locales = "/usr/lib/locale/"
	for _, name := range []string{"C.utf8", "C.UTF-8"} {
		if _, err := os.Stat(root + locales + name); err == nil {
			return false
		}
	}
	archive, err := os.Open(root + locales + "locale-archive")
	if err != nil {
		return true
	}
	defer func() { _ = archive.Close() }()
	names, _ := io.ReadAll(io.LimitReader(archive, 1<<20)) // of hundreds of MiB; the names come first
	return !bytes.Contains(names, []byte("\x00C.utf8\x00"))
}
