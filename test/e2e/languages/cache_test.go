package languages

import (
	"testing"

	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// makeCache puts the environment go, and makes Go's cache. A Go before 1.20 needs none.
func makeCache(t testing.TB, b bed.Bed, srv *server.Server) {
	t.Helper()
	b.Put(t, object{"id": "go", "poolSize": 0, "resources": object{"memoryMiB": 1024, "processes": 256, "workspaceMiB": 512}})
	if err := srv.MakeCaches(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// TestE2EGoCache: with the cache, builds compile only what isn't in the standard library. Their own packages are
// cached for the next build.
func TestE2EGoCache(t *testing.T) {
	b := bed.Open(t)
	makeCache(t, b, bed.SharedServer.Server)
	const program = `mkdir -p m/own && cd m && printf 'module m\ngo 1.19\n' >go.mod && printf 'package own\nfunc Two() int { return 2 }\n' >own/own.go &&
printf 'package main\nimport ("m/own"; "net/http")\nfunc main() { println(own.Two(), http.StatusOK) }\n' >main.go
go build -x -o app 2>&1 | grep -c 'compile.* -p '
./app 2>&1
echo '// changed' >>main.go; go build -x -o app 2>&1 | grep -c 'compile.* -p '
touch /var/cache/rockpool/go-*/fmt.a 2>/dev/null || echo read-only`
	got := b.Run(t, object{"runnerId": b.Claim(t, "go"), "shell": program, "timeLimit": 300})
	if want := "2\n2 200\n1\nread-only\n"; got.Stream("STDOUT") != want {
		t.Errorf("%q, want %q: %s", got.Stream("STDOUT"), want, got.Message)
	}
}
