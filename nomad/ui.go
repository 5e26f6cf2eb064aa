package nomad

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// ui says where Nomad's own pages are.
type ui struct {
	base      string // without a slash at the end; "": nowhere that a browser reaches
	namespace string
	region    string // "": the server's own
}

// checkUI checks Config.UIURL.
func checkUI(address string) error {
	if address != "" && !browsable(address) {
		return runtime.Invalid("uiUrl", "must be an http or https address of Nomad's pages without a user, for example https://nomad.example.org")
	}
	return nil
}

// browsable reports whether an address is one for a browser, without a secret.
func browsable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// newUI returns the pages at an address, or at that of Nomad's API where none
// is given and that is one for a browser.
func newUI(address string, settings api.Config) ui {
	if address == "" && browsable(settings.Address) {
		address = settings.Address
	}
	u := ui{base: strings.TrimSuffix(strings.TrimRight(address, "/"), "/ui"), namespace: settings.Namespace, region: settings.Region}
	u.namespace = cmp.Or(u.namespace, api.DefaultNamespace)
	return u
}

// job is the page of a job; "": nowhere.
func (u ui) job(id string) string {
	return u.page("/ui/jobs/"+url.PathEscape(id)+"@"+url.PathEscape(u.namespace), url.Values{})
}

// evaluation is the page of an evaluation; "": nowhere.
func (u ui) evaluation(id string) string {
	return u.page("/ui/evaluations", url.Values{"currentEval": {id}, "namespace": {u.namespace}})
}

func (u ui) page(path string, query url.Values) string {
	if u.base == "" {
		return ""
	}
	if u.region != "" {
		query.Set("region", u.region)
	}
	if len(query) == 0 {
		return u.base + path
	}
	return u.base + path + "?" + query.Encode()
}
