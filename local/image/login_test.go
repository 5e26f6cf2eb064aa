package image

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
)

// Secrets that must appear nowhere.
const (
	password = "hunter2"
	identity = "id-hunter3"
	token    = "bearer-hunter4"
)

// A door is a registry's authentication. Its error messages repeat what they were sent.
type door struct {
	token string // URL of the token service; "" means it accepts the password itself
	open  atomic.Bool
}

func (d *door) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		switch {
		case d.open.Load(), d.token == "" && user == "user" && given == password, d.token != "" && r.Header.Get("Authorization") == "Bearer "+token:
			next.ServeHTTP(w, r)
			return
		case r.URL.Path == "/token":
			d.serveToken(w, r)
			return
		case d.token == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		default:
			where := d.token
			if where == "/token" {
				where = "http://" + r.Host + where
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="x",scope="repository:x:pull"`, where))
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"you sent %s as %s"}]}`, r.Header.Get("Authorization"), given)
	})
}

func (d *door) serveToken(w http.ResponseWriter, r *http.Request) {
	user, given, _ := r.BasicAuth()
	switch {
	case r.Method == http.MethodPost && r.FormValue("refresh_token") == identity, user == "user" && given == password:
		_, _ = fmt.Fprintf(w, `{"token":%q,"access_token":%q,"expires_in":60}`, token, token)
	case given == "half":
		_, _ = fmt.Fprintf(w, `{"refresh_token":%q}`, identity)
	default:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, "you sent %s, %s", given, r.FormValue("refresh_token"))
	}
}

// logIn writes a file of docker with this single entry.
func logIn(t *testing.T, host, entry string) {
	t.Helper()
	path := filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"auths":{%q:%s}}`, host, entry), 0o600); err != nil {
		t.Fatal(err)
	}
}

func withPassword(given string) string {
	return fmt.Sprintf(`{"auth":%q}`, base64.StdEncoding.EncodeToString([]byte("user:"+given)))
}

// A registry gives images to authenticated clients, and the credentials appear nowhere else.
func TestCredentialsAreUsedAndNeverShown(t *testing.T) {
	t.Setenv("REGISTRY_AUTH_FILE", "")
	for name, c := range map[string]struct{ token, right string }{
		"a password":                      {"", withPassword(password)},
		"a token, for a password":         {"/token", withPassword(password)},
		"a token, for an identity's":      {"/token", fmt.Sprintf(`{"identitytoken":%q}`, identity)},
		"a token that was given":          {"/token", fmt.Sprintf(`{"registrytoken":%q}`, token)},
		"a token of another, by its name": {"elsewhere", withPassword(password)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			d := &door{token: c.token}
			var named []string // only the registry of the reference gets a request
			if c.token == "elsewhere" {
				other := httptest.NewServer(http.HandlerFunc(d.serveToken))
				defer other.Close()
				d.token = strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/token"
				named = []string{strings.Replace(other.Listener.Addr().String(), "127.0.0.1", "localhost", 1)}
			}
			d.open.Store(true)
			registry := imagetest.NewRegistry(t, d.wrap)
			reference := registry.Push(small(t, name), "x:1")
			d.open.Store(false)
			core, logs := observer.New(zapcore.DebugLevel)
			var said []string
			b := newBox(t, t.TempDir(), func(config *Config) { config.Logger, config.Plain = zap.New(core), named })

			for _, wrong := range []string{`{}`, withPassword("wrong-" + password), withPassword("half"), fmt.Sprintf(`{"identitytoken":"wrong-%s"}`, identity)} {
				logIn(t, registry.Host, wrong)
				_, err := b.Resolve(t.Context(), reference)
				if half := wrong == withPassword("half") && c.token != ""; !half && !errors.Is(err, errLogin) || err == nil {
					t.Errorf("%s: got %v, want %v", wrong, err, errLogin)
				}
				said = append(said, fmt.Sprint(err))
			}
			logIn(t, registry.Host, c.right)
			pin, err := b.Resolve(t.Context(), reference)
			if err != nil {
				t.Fatal(err)
			}
			logIn(t, registry.Host, withPassword("wrong-"+password)) // by the time of the pull
			b.use(pin.Digest, true)
			b.Want(reference, pin.Digest)
			s := b.await(pin.Digest, runtime.ImageFailed, runtime.ImageReady)
			if s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "log in there") {
				t.Errorf("%+v", s)
			}
			logIn(t, registry.Host, c.right)
			if _, err := b.Resolve(t.Context(), reference); err != nil { // this retries the pull immediately
				t.Error(err)
			}
			if s := b.Status(pin.Digest); s.State == runtime.ImageFailed {
				t.Errorf("the retried pull is still %+v", s)
			}
			b.await(pin.Digest, runtime.ImageReady)
			b.stop()
			for _, l := range logs.All() {
				said = append(said, fmt.Sprint(l.Message, l.ContextMap()))
			}
			for _, text := range append(said, s.Reason) {
				for _, secret := range []string{password, identity, token, base64.StdEncoding.EncodeToString([]byte("user:" + password))} {
					if strings.Contains(text, secret) {
						t.Errorf("%q is seen in %s", secret, text)
					}
				}
			}
			b.clean(pin.Digest)
		})
	}
}

// The token service must be permitted, too.
func TestTokenServicesMustBePermitted(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer other.Close()
	for where, says := range map[string]string{
		strings.Replace(other.URL, "127.0.0.1", "localhost", 1): "--image-registries", // the settings don't allow it
		other.URL:                 "private",
		"http://169.254.169.254/": "private",
	} {
		d := &door{token: where + "/token"}
		registry := imagetest.NewRegistry(t, d.wrap)
		logIn(t, registry.Host, withPassword(password))
		b := newBox(t, t.TempDir(), func(c *Config) { c.Registries = []string{registry.Host} })
		if _, err := b.Resolve(t.Context(), registry.Host+"/x:1"); runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), says) {
			t.Errorf("%s: got %v, want INVALID_INPUT with %q", where, err, says)
		}
	}
	if len(asked) > 0 {
		t.Errorf("%s was requested", <-asked)
	}
}

// An authority in the settings is trusted.
func TestConfiguredAuthorityIsTrusted(t *testing.T) {
	var secure *httptest.Server
	d := &door{}
	d.open.Store(true)
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		secure = httptest.NewUnstartedServer(d.wrap(next))
		secure.Config.ErrorLog = log.New(io.Discard, "", 0)
		secure.StartTLS()
		return next
	})
	t.Cleanup(secure.Close)
	registry.Push(small(t, "x"), "x:1")
	reference := strings.TrimPrefix(secure.URL, "https://") + "/x:1"
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, t.TempDir(), nil)
	if _, err := b.Resolve(t.Context(), reference); runtime.CodeOf(err) != runtime.CodeClusterUnavailable || !strings.Contains(runtime.MessageOf(err), "--image-ca-cert") {
		t.Errorf("without the authority: %v", err)
	}
	b = newBox(t, t.TempDir(), func(c *Config) { c.CACert = ca })
	if s := b.want(reference); s.State != runtime.ImageReady {
		t.Errorf("%+v", s)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	logIn(t, strings.TrimPrefix(secure.URL, "https://"), withPassword(password))
	d.open.Store(false)
	if _, err := b.Resolve(t.Context(), reference); err != nil {
		t.Errorf("with a password: %v", err)
	}
	for _, wrong := range []string{filepath.Join(t.TempDir(), "none"), "/dev/null"} {
		if _, err := Open(Config{Dir: t.TempDir(), CACert: wrong, Logger: zap.NewNop()}); err == nil {
			t.Errorf("%s is taken for authorities", wrong)
		}
	}
}
