package connection

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Pages returns addresses of Nomad's web UI.
type Pages struct {
	base      string // without a slash at the end; empty if it is unknown
	namespace string
	region    string // empty for the server's own
}

// browsable reports whether a browser can use an address, and it contains no secret.
func browsable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// newPages returns the pages at an address, or at that of Nomad's API if a browser can use it.
func newPages(address string, settings api.Config) Pages {
	if address == "" && browsable(settings.Address) {
		address = settings.Address
	}
	u := Pages{base: strings.TrimSuffix(strings.TrimRight(address, "/"), "/ui"), namespace: settings.Namespace, region: settings.Region}
	u.namespace = cmp.Or(u.namespace, api.DefaultNamespace)
	return u
}

// Job returns the page of a job; "" if the address of the web UI is unknown.
func (u Pages) Job(id string) string {
	return u.page("/ui/jobs/"+url.PathEscape(id)+"@"+url.PathEscape(u.namespace), url.Values{})
}

// Evaluation returns the page of an evaluation; "" if the address of the web UI is unknown.
func (u Pages) Evaluation(id string) string {
	return u.page("/ui/evaluations", url.Values{"currentEval": {id}, "namespace": {u.namespace}})
}

// page returns the address of a page, if that of the web UI is known. It modifies query.
func (u Pages) page(path string, query url.Values) string {
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
