package request

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// Bounds of claims.
const (
	defaultInactivity = 10 * time.Minute
	maxInactivity     = 30 * 24 * time.Hour
	maxKeyBytes       = 255

	// MaxWait is the maximum of WaitFor.
	MaxWait = time.Hour
)

// A Claim requests a runner.
type Claim struct {
	EnvironmentID     runtime.EnvironmentID
	Tenant            runtime.TenantID // of the holder
	InactivityTimeout *int             // seconds; 0 means never
	WaitFor           *int             // seconds
	Key               string
	// Keys is the scope in which Key is unique: the tenant's name; "" for callers for all tenants;
	// "grant:" and the runner's id for grants.
	Keys string
	// Holder is the caller's own name for the holder, unique in Keys and the environment. It
	// can't be combined with Key. nil means none.
	Holder *string
	Labels []runtime.Label
	Caller string // waiting claims of different callers take turns
}

// Parse checks a claim that isn't part of a run, and returns it.
func (in Claim) Parse() (pool.Claim, error) {
	claim, err := in.ParsePart()
	if in.Key != "" {
		claim.Claim.Key = ScopedKey(in.Keys, "claim/"+in.Key) // separate from the keys of run
	}
	if err == nil && in.Holder != nil {
		claim.Claim.Holder, claim.Claim.HolderScope, claim.Claim.Input = *in.Holder, in.Keys, ""
		if err = runtime.ValidateHolder(*in.Holder); in.Key != "" {
			err = runtime.Invalid("holder", "can't be combined with idempotencyKey: a claim with a holder is safe to repeat without one")
		}
	}
	return claim, err
}

// ParsePart checks a claim that is part of a run. It sets neither key nor holder.
func (in Claim) ParsePart() (pool.Claim, error) {
	claim := pool.Claim{Claim: runtime.Claim{Tenant: in.Tenant, InactivityTimeout: defaultInactivity, Labels: in.Labels}, Caller: in.Caller}
	err := cmp.Or(
		bounded(&claim.Claim.InactivityTimeout, "inactivityTimeout", in.InactivityTimeout, time.Second, 0, int64(maxInactivity/time.Second), "seconds"),
		bounded(&claim.WaitFor, "waitFor", in.WaitFor, time.Second, 0, int64(MaxWait/time.Second), "seconds"),
		runtime.ValidateLabels(in.Labels),
		text("idempotencyKey", in.Key, maxKeyBytes),
	)
	if err != nil {
		return claim, err
	}
	// A retry may wait longer or shorter, so WaitFor isn't part of the input.
	claim.Claim.Input = Digest(struct {
		Environment runtime.EnvironmentID
		Inactivity  time.Duration
		Labels      []runtime.Label
	}{in.EnvironmentID, claim.Claim.InactivityTimeout, in.Labels})
	return claim, nil
}

// Digest returns a fingerprint of a request that is made with an idempotency key.
func Digest(request any) string {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // impossible: these are plain structs
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ScopedKey returns an idempotency key of a scope as it is stored. Keys of callers for all tenants, whose
// scope is "", have no prefix.
func ScopedKey(scope, key string) string {
	if scope == "" {
		return key
	}
	return KeyPrefix(scope) + key
}

// KeyPrefix returns the prefix of all stored keys of a scope.
func KeyPrefix(scope string) string { return "tenant/" + scope + "/" }

// KeyConflict returns CONFLICT for an idempotency key that was used with another input.
func KeyConflict() error {
	return runtime.Errorf(runtime.CodeConflict, "this idempotencyKey was used before with a different input: use a new key")
}

// HolderKey returns the key under which a holder's claim is stored.
func HolderKey(id runtime.EnvironmentID, claim runtime.Claim) string {
	return ScopedKey(claim.HolderScope, "holder/"+string(id)+"/"+claim.Holder)
}
