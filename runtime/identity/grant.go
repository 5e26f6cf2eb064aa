package identity

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// A grant's text is grantPrefix and a JSON Web Token (RFC 7519), signed with HMAC-SHA256 only: any
// other algorithm in the header is refused. The key is derived from the server's key and signs
// nothing else.
const (
	grantPrefix   = "rpg_"
	grantAudience = "rockpool-grant"
)

// IsGrant reports whether a text has the form of a grant.
func IsGrant(text string) bool { return strings.HasPrefix(text, grantPrefix) }

// Default and maximum life of a grant.
const (
	DefaultGrantLife = time.Hour
	MaxGrantLife     = 30 * 24 * time.Hour
)

type grants struct {
	key    []byte // for verification; derived from the server's key
	signer jose.Signer
}

// newGrants returns grants signed with a key that is derived from key.
func newGrants(key []byte) grants {
	derived := derive(key, "rockpool grants")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: derived}, nil)
	if err != nil {
		panic(err) // the key's length is a constant
	}
	return grants{derived, signer}
}

// grantClaims are a grant's claims in addition to the registered ones: jti is the grant's id, sub
// the id of the token that made it.
type grantClaims struct {
	jwt.Claims
	Tenant     runtime.TenantID    `json:"tenant,omitempty"`
	AllTenants bool                `json:"all,omitempty"`
	Execution  runtime.ExecutionID `json:"execution,omitempty"`
	Runner     runtime.RunnerID    `json:"runner,omitempty"`
	Rights     []access.Right      `json:"rights"`
}

// Why a grant is rejected.
var (
	errGrant        = unauthenticated("the grant wasn't signed by this server")
	errGrantExpired = unauthenticated("the grant has expired: make a new one with createGrant")
	errGrantorEnded = unauthenticated("the token that made the grant has ended, and the grant with it")
)

// Sign returns the text of a grant made by a caller, valid for life, and the grant with ID and
// Expires set.
func (r *Registry) Sign(by access.Principal, g access.Grant, life time.Duration) (string, access.Grant, error) {
	if by.Grant != nil || by.Kind == access.KindServer {
		return "", g, runtime.Errorf(runtime.CodeForbidden, "a grant can't make grants")
	}
	now := r.clock.Now()
	g.ID, g.Expires = uuid.Must(uuid.NewV7()).String(), now.Add(life).Truncate(time.Second)
	text, err := jwt.Signed(r.grants.signer).Claims(grantClaims{
		Claims: jwt.Claims{ID: g.ID, Subject: by.ID, Audience: jwt.Audience{grantAudience}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(g.Expires)},
		Tenant: by.Tenant, AllTenants: by.AllTenants, Execution: g.Execution, Runner: g.Runner, Rights: g.Rights,
	}).Serialize()
	if err != nil {
		return "", g, fmt.Errorf("sign a grant: %w", err)
	}
	return grantPrefix + text, g, nil
}

func (r *Registry) authenticateGrant(shown string) (Caller, error) {
	token, err := jwt.ParseSigned(strings.TrimPrefix(shown, grantPrefix), []jose.SignatureAlgorithm{jose.HS256})
	if err != nil {
		return Caller{}, errGrant
	}
	var claims grantClaims
	if err := token.Claims(r.grants.key, &claims); err != nil {
		return Caller{}, errGrant
	}
	if claims.Expiry == nil || !slices.Contains(claims.Audience, grantAudience) || claims.Execution == "" == (claims.Runner == "") {
		return Caller{}, errGrant
	}
	until := r.clock.Anchor(claims.Expiry.Time())
	if !r.clock.Now().Before(until) {
		return Caller{}, errGrantExpired
	}
	// A grant ends with the token that made it.
	maker, err := r.ByID(claims.Subject)
	if err != nil {
		return Caller{}, errGrantorEnded
	}
	maker.until = until
	maker.Principal = access.Principal{
		Kind: access.KindGrant, ID: claims.Subject, Name: maker.Name, Tenant: claims.Tenant, AllTenants: claims.AllTenants,
		Grant: &access.Grant{ID: claims.ID, Execution: claims.Execution, Runner: claims.Runner, Rights: claims.Rights, Expires: until},
	}
	return maker, nil
}
