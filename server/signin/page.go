package signin

import (
	"html/template"
	"net/http"
	"net/url"

	"go.uber.org/zap"
)

// A problem is the reason why a sign-in failed. title and text are for the person, cause is for the log.
type problem struct {
	status      int
	title, text string
	back        string // path to return to after the sign-in
	cause       error
	subject     string // the person's id at the provider, or ""
}

// foreign returns the problem of a callback that doesn't belong to an attempt of this browser.
func (s *SignIn) foreign(cause error) *problem {
	return &problem{
		status: http.StatusBadRequest, title: "This sign-in wasn't started in this browser", back: "/", cause: cause,
		text: "It was already used, took longer than ten minutes, or was started in another browser. Or another tab has started a newer one, or the server was restarted. Sign in again. If it fails again, open this server as " + s.origin + " and allow its cookies.",
	}
}

// unproven returns the problem of a response that doesn't prove the person's identity.
func unproven(back string, cause error) *problem {
	return &problem{
		status: http.StatusForbidden, title: "The provider's response was refused", back: back, cause: cause,
		text: "It doesn't prove who you are. Sign in again. If it fails again, the server's log says why.",
	}
}

// unavailable returns the problem of an unreachable provider.
func unavailable(back string, cause error) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, title: "The provider can't be reached", back: back, cause: cause,
		text: "Try again in a few seconds. If it keeps failing, an administrator can find the reason in the server's log, and should check that the provider runs and that --oidc-issuer is its URL. Tokens of this server still work.",
	}
}

// internal returns the problem of a server that can't store a session.
func internal(back string, cause error) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, title: "The server can't sign you in now", back: back, cause: cause,
		text: "Try again in a few seconds. The server's log says why.",
	}
}

// page is the page about a problem. html/template escapes its values.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}} – Rockpool</title></head>
<body>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<p>{{if .Login}}<a href="{{.Login}}">Sign in again</a> · {{end}}<a href="/">To the dashboard</a></p>
</body>
</html>
`))

// refuse logs a problem and responds with its page.
func (s *SignIn) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	cause := p.cause.Error()
	s.refusals.Warn("sign-in refused", zap.Int("status", p.status), zap.String("cause", cause[:min(len(cause), 500)]), zap.String("subject", p.subject), zap.String("address", s.options.Address(r)))
	if p.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	show(w, p.status, p.title, p.text, "/auth/login?"+url.Values{"return": {p.back}}.Encode())
}

// unconfigured responds to all paths if the settings have no provider.
func (s *SignIn) unconfigured(w http.ResponseWriter, _ *http.Request) {
	show(w, http.StatusNotFound, "This server has no sign-in", "Use a token. An administrator sets --oidc-issuer to let people sign in.", "")
}

// show responds with the page. Without login, the page has no link to sign in.
func show(w http.ResponseWriter, status int, title, text, login string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, struct{ Title, Text, Login string }{title, text, login}) // an error means that the client is gone
}
