package languages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

// TestE2EImage builds an image from Debian's packages as root and as a user, and runs the programs of its
// languages in it.
func TestE2EImage(t *testing.T) {
	need.Languages(t)
	b := bed.Open(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir, err := os.MkdirTemp("", "rp-image-") // other users can't enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cache, ids, built := filepath.Join(dir, "cache"), filepath.Join(dir, "ids"), filepath.Join(b.Data, "image-files", "built.tar")
	build := func(program, file, cache string) []string {
		return []string{program, "image", "build", "built", "--config", os.DevNull, "--file", file, "--cache", cache,
			"--languages", "python3,c,shell,bash", "--packages", "git,patch,file,jq,curl,python3-numpy"}
	}
	var digests []string
	for _, command := range [][]string{
		build(bed.Rockpool(t), built, cache),
		// The user's cache has other owners, times and modes.
		{"install", "-m", "755", bed.Rockpool(t), filepath.Join(dir, "rockpool")},
		{"touch", "-d", "2020-01-01", cache, filepath.Join(cache, "lock")},
		{"chown", "-R", "bin:bin", dir},
		{"chmod", "755", dir}, {"chmod", "700", cache},
		{"sh", "-c", `echo bin:300000000:65536 >"$0"`, ids},
		append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"`, ids,
			"setpriv", "--reuid", "bin", "--regid", "bin", "--clear-groups", "env", "HOME=" + dir, "TMPDIR=" + dir},
			build(filepath.Join(dir, "rockpool"), filepath.Join(dir, "user.tar"), cache)...),
	} {
		out, errs, code := bed.RunProgram(t, nil, command[0], command[1:]...)
		if code != 0 {
			t.Fatalf("%q: exit %d\n%s", command, code, errs)
		}
		digests = append(digests, regexp.MustCompile(`sha256:\w+`).FindString(out))
	}
	if first, second := digests[0], digests[len(digests)-1]; first != second || first == "" {
		t.Errorf("the same packages gave the digests %s as root, and %s as a user", first, second)
	}
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(p Program) bool {
		return !slices.Contains([]string{"Assembler", "AWK", "C", "Python", "Shell"}, p.Language)
	})
	s := New(t, b, Platform{Name: "image", Image: "file:built.tar"})
	s.Run(t, all, func(t testing.TB, tool string) { t.Skipf("the image has no %s", tool) })
}
