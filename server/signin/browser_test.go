package signin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// memory implements Sessions in memory.
type memory struct {
	mu   sync.Mutex
	open map[string]Identity
	fail error // of End and Begin
}

func (m *memory) Begin(_ context.Context, who Identity) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return "", m.fail
	}
	if who.Tenant != runtime.DefaultTenant && who.Tenant != "physics" {
		return "", ErrUnknownTenant
	}
	secret := rand.Text()
	m.open[secret] = who
	return secret, nil
}

func (m *memory) Lookup(_ context.Context, secret string) (Identity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	who, found := m.open[secret]
	return who, found && time.Now().Before(who.Expires)
}

func (m *memory) End(_ context.Context, secret string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		delete(m.open, secret)
	}
	return m.fail
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// A site is a server with a sign-in.
type site struct {
	*SignIn
	url      string
	sessions *memory
	logged   *observer.ObservedLogs
}

// newSite serves a sign-in whose provider redirects back to it.
func newSite(t *testing.T, options func(redirectURL string) Options) *site {
	t.Helper()
	s := &site{sessions: &memory{open: map[string]Identity{}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/auth/") {
			s.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, "the page "+r.URL.RequestURI())
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	core, logged := observer.New(zap.DebugLevel)
	s.logged = logged
	o := options(server.URL + "/auth/callback")
	o.RedirectURL, o.Sessions, o.Logger = server.URL+"/auth/callback", s.sessions, zap.New(core)
	if o.Scopes == nil {
		o.Scopes = []string{"openid", "profile", "email", "groups"}
	}
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	s.SignIn = New(o)
	return s
}

// A browser keeps cookies and sends the page of a request, like real browsers.
type browser struct {
	t      *testing.T
	client *http.Client
	jar    http.CookieJar
	path   []string // the addresses of the last visit
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, jar: jar}
	b.client = &http.Client{Jar: jar, Timeout: wait.Limit, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		b.path = append(b.path, r.URL.String())
		if len(via) > 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return b
}

// A view is a page in a browser.
type view struct {
	status int
	url    *url.URL
	text   string
	header http.Header
}

// visit opens an address as if the user typed it.
func (b *browser) visit(address string) view {
	b.t.Helper()
	return b.send(http.MethodGet, address, nil, "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate")
}

// send sends a request with headers.
func (b *browser) send(method, address string, form url.Values, headers ...string) view {
	b.t.Helper()
	b.path = nil
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, address, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return view{response.StatusCode, response.Request.URL, string(text), response.Header}
}

// follow opens the link of a view whose address contains a text.
func (b *browser) follow(v view, part string) view {
	b.t.Helper()
	for _, link := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(v.text, -1) {
		if address := html.UnescapeString(link[1]); strings.Contains(address, part) {
			to, err := v.url.Parse(address)
			if err != nil {
				b.t.Fatal(err)
			}
			return b.visit(to.String())
		}
	}
	b.t.Fatalf("%s has no link with %q: %s", v.url, part, v.text)
	return view{}
}

// cookies returns the browser's cookies for a server, by name.
func (b *browser) cookies(address string) map[string]string {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range b.jar.Cookies(u) {
		all[c.Name] = c.Value
	}
	return all
}

// who returns whether sign-in is configured, and the signed-in person of the browser, as a page of the
// server sees them.
func (b *browser) who(s *site) (configured bool, who *Identity) {
	b.t.Helper()
	v := b.visit(s.url + "/auth/provider")
	var answer struct{ Configured *bool }
	if err := json.Unmarshal([]byte(v.text), &answer); err != nil || v.status != http.StatusOK || answer.Configured == nil {
		b.t.Fatalf("%d %s: %v", v.status, v.text, err)
	}
	r := httptest.NewRequest(http.MethodPost, s.url+"/graphql", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range b.cookies(s.url) {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	if secret, sent := s.Secret(r); sent {
		if found, is := s.sessions.Lookup(b.t.Context(), secret); is {
			who = &found
		}
	}
	return *answer.Configured, who
}

// logout signs out like the dashboard.
func (b *browser) logout(s *site) view {
	b.t.Helper()
	return b.send(http.MethodPost, s.url+"/auth/logout", nil, "Origin", s.url, "Sec-Fetch-Site", "same-origin")
}

// refused checks that a sign-in was refused with a page and began no session.
func (s *site) refused(t *testing.T, b *browser, v view, status int, says string) {
	t.Helper()
	if v.status != status || !strings.Contains(html.UnescapeString(v.text), says) || !strings.HasPrefix(v.header.Get("Content-Type"), "text/html") {
		t.Errorf("%d instead of %d with %q: %s", v.status, status, says, v.text)
	}
	if policy := v.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy: %q", policy)
	}
	if _, has := b.cookies(s.url)["rockpool"]; has || s.sessions.count() != 0 {
		t.Errorf("a session began: %v", b.cookies(s.url))
	}
}
