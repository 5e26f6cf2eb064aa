package connections

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/test/tlstest"
)

// renewed returns certificates whose files are behind a symbolic link, as with certbot and Kubernetes,
// and their log.
func renewed(t *testing.T) (c *Certificates, dir string, logs *observer.ObservedLogs) {
	t.Helper()
	dir = t.TempDir()
	put(t, dir, "first")
	link(t, dir, "first")
	core, logs := observer.New(zapcore.InfoLevel)
	c, err := LoadCertificates(Files{Cert: filepath.Join(dir, "live", "cert.pem"), Key: filepath.Join(dir, "live", "key.pem"), MinVersion: tls.VersionTLS13}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	return c, dir, logs
}

// put creates a directory with a certificate for a name.
func put(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	tlstest.New(t).Write(t, filepath.Join(dir, name), name)
}

// link changes the symbolic link live to a directory.
func link(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Symlink(name, filepath.Join(dir, "next")); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "live"))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// next returns the certificate's name at a handshake after the next check.
func (c *Certificates) next() string {
	c.mu.Lock()
	c.checked = c.checked.Add(-reloadEvery)
	c.mu.Unlock()
	return c.config(false).Certificates[0].Leaf.Subject.CommonName
}

func TestRenewedCertificatesAreUsed(t *testing.T) {
	c, dir, logs := renewed(t)
	if got := c.next(); got != "first" {
		t.Errorf("%s at first, want first", got)
	}
	put(t, dir, "second")
	link(t, dir, "second")
	if got := c.next(); got != "second" {
		t.Errorf("%s after another link, want second", got)
	}
	put(t, dir, "third")
	for _, file := range []string{"cert.pem", "key.pem"} {
		rename(t, filepath.Join(dir, "third", file), filepath.Join(dir, "second", file))
	}
	if got := c.next(); got != "third" {
		t.Errorf("%s after files were renamed, want third", got)
	}
	tlstest.New(t).Write(t, filepath.Join(dir, "second"), "fourth")
	if got := c.next(); got != "fourth" {
		t.Errorf("%s after files were written, want fourth", got)
	}
	if n := logs.FilterMessage("the certificate was reloaded").Len(); n != 3 {
		t.Errorf("%d log lines, want 3", n)
	}
	before := c.read
	if c.checked = time.Now(); c.config(false).Certificates[0].Leaf.Subject.CommonName != "fourth" || c.read != before {
		t.Error("files are read although a check was just made")
	}
}

// TestABrokenRenewalKeepsTheOldCertificate, and a half-finished renewal isn't logged.
func TestABrokenRenewalKeepsTheOldCertificate(t *testing.T) {
	c, dir, logs := renewed(t)
	put(t, dir, "second")
	rename(t, filepath.Join(dir, "second", "cert.pem"), filepath.Join(dir, "first", "cert.pem"))
	if got := c.next(); got != "first" || logs.Len() > 0 {
		t.Errorf("%s with the new certificate and the old key, %d log lines", got, logs.Len())
	}
	for range 3 {
		if got := c.next(); got != "first" {
			t.Errorf("%s when it stays so, want first", got)
		}
	}
	if n := logs.FilterLevelExact(zapcore.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d errors are logged, want 1", n)
	}
	rename(t, filepath.Join(dir, "second", "key.pem"), filepath.Join(dir, "first", "key.pem"))
	if got := c.next(); got != "second" {
		t.Errorf("%s with the new key, want second", got)
	}
	if err := os.Remove(filepath.Join(dir, "first", "key.pem")); err != nil {
		t.Fatal(err)
	}
	if got := c.next(); got != "second" {
		t.Errorf("%s without a file, want second", got)
	}
}

func TestInvalidFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.New(t).Write(t, dir, "x")
	for _, test := range []struct {
		files Files
		says  string
	}{
		{Files{Cert: "/nonesuch", Key: key}, "--tls-cert: stat /nonesuch"},
		{Files{Cert: cert, Key: "/nonesuch"}, "--tls-key: stat /nonesuch"},
		{Files{Cert: cert, Key: key, ClientCA: "/nonesuch"}, "--tls-client-ca: stat /nonesuch"},
		{Files{Cert: key, Key: key}, "--tls-cert"},
		{Files{Cert: cert, Key: cert}, "--tls-key"},
		{Files{Cert: cert, Key: key, ClientCA: key}, "--tls-client-ca"},
	} {
		if _, err := LoadCertificates(test.files, zap.NewNop()); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test.files, err)
		}
	}
}
