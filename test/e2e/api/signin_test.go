package api

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/dextest"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/port"
	"github.com/rockpool/rockpool/test/wait"
)

var connectorLink = regexp.MustCompile(`href="([^"]*/auth/mock[^"]*)"`)

// TestE2ESignIn: a person who signed in with a provider may call the API, only from pages of the
// server itself, until they sign out.
func TestE2ESignIn(t *testing.T) {
	address := port.Spare(t)
	dex := dextest.New(t, "http://"+address+"/auth/callback")
	dex.Run(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(dextest.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := bed.Settings(bed.DataDir(t), bed.Cgroups)
	settings.Listen = address
	settings.OIDC = config.OIDC{
		Issuer: dex.Issuer, ClientID: dextest.ClientID, ClientSecretFile: secret, RedirectURL: "http://" + address + "/auth/callback",
		Scopes: []string{"openid", "profile", "email", "groups"}, RoleClaim: "groups", Roles: []string{dextest.MockGroup + "=ADMIN"}, Session: time.Hour,
	}
	s, _ := bed.ServeHere(t, settings)

	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, Timeout: wait.Limit}
	t.Cleanup(browser.CloseIdleConnections)
	send := func(method, target, body string, header ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	const me = `{"query":"{ me { kind name role tenant } auditLog(action: \"signIn\") { nodes { actorKind outcome } } }"}`
	own := []string{"Origin", s.Address}
	if status, text := send("POST", s.Address+"/graphql", me, own...); status != http.StatusUnauthorized {
		t.Fatalf("before the sign-in: %d %s", status, text)
	}
	_, page := send("GET", s.Address+"/auth/login?return=/graphql%3Fquery%3D%7Bversion%7D", "")
	link := connectorLink.FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no connector in %s", page)
	}
	target, err := url.Parse(html.UnescapeString(link[1]))
	if err != nil {
		t.Fatal(err)
	}
	issuer, _ := url.Parse(dex.Issuer)
	send("GET", issuer.ResolveReference(target).String(), "")

	status, text := send("POST", s.Address+"/graphql", me, own...)
	var who struct {
		Data struct {
			Me struct {
				Kind, Name, Role string
				Tenant           *string
			}
			AuditLog struct {
				Nodes []struct{ ActorKind, Outcome string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &who); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if w := who.Data.Me; w.Kind != "SESSION" || w.Role != "ADMIN" || w.Tenant != nil || w.Name != "Kilgore Trout" {
		t.Errorf("signed in as %+v", w)
	}
	if all := who.Data.AuditLog.Nodes; len(all) != 1 || all[0].ActorKind != "SESSION" || all[0].Outcome != "OK" {
		t.Errorf("audit log: %s", text)
	}
	for name, header := range map[string][]string{
		"a program with the cookie": nil, "a page of another site": {"Sec-Fetch-Site", "cross-site"}, "a page of another origin": {"Origin", "http://127.0.0.1:1"},
	} {
		if status, text := send("POST", s.Address+"/graphql", me, header...); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := send("POST", s.Address+"/auth/logout", "", own...); status != http.StatusNoContent {
		t.Errorf("sign out: %d %s", status, text)
	}
	if status, text := send("POST", s.Address+"/graphql", me, own...); status != http.StatusUnauthorized {
		t.Errorf("after it: %d %s", status, text)
	}
}
