package runtime

import (
	"cmp"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A TenantID names a tenant: a group of callers that see and use only their own objects. The zero
// value is the default tenant, so objects stored before tenants existed belong to it.
type TenantID string

// DefaultTenant is the tenant of callers without another one.
const DefaultTenant TenantID = ""

const defaultTenantName = "default"

// String returns the tenant's name as the API spells it.
func (id TenantID) String() string {
	if id == DefaultTenant {
		return defaultTenantName
	}
	return string(id)
}

// UnmarshalText reads a name as the API spells it, which may be written by hand.
func (id *TenantID) UnmarshalText(text []byte) error {
	if *id = TenantID(text); *id == defaultTenantName {
		*id = DefaultTenant
	}
	return nil
}

// tenantNames are valid as DNS labels.
var tenantNames = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ParseTenant returns the tenant with this name. It returns INVALID_INPUT for field unless the name
// is 1 to 63 lower-case letters, digits and hyphens that don't begin with a hyphen.
func ParseTenant(field, name string) (TenantID, error) {
	if name == defaultTenantName {
		return DefaultTenant, nil
	}
	if !tenantNames.MatchString(name) {
		return "", Invalid(field, "must be 1 to 63 lower-case letters, digits and '-', not beginning with '-'")
	}
	return TenantID(name), nil
}

// A Tenant is a tenant's stored settings.
type Tenant struct {
	ID        TenantID  `json:"id"`
	Weight    int       `json:"weight"` // turns of its waiting claims per turn of a tenant with weight 1
	Quotas    Quotas    `json:"quotas"`
	CreatedAt time.Time `json:"createdAt"`
}

// Bounds of Tenant.Weight.
const (
	DefaultWeight = 1
	MaxWeight     = 1000
)

// Quotas limit what a tenant uses. nil means no limit.
type Quotas struct {
	Runners           *int   `json:"runners,omitempty"`           // held concurrently
	Waiting           *int   `json:"waiting,omitempty"`           // claims waiting concurrently
	Executions        *int   `json:"executions,omitempty"`        // unfinished, concurrently
	ClaimsPerMinute   *int   `json:"claimsPerMinute,omitempty"`   // in any 60 seconds
	CPUSecondsPerDay  *int64 `json:"cpuSecondsPerDay,omitempty"`  // of executions that ended on one day (UTC)
	OutputBytesPerDay *int64 `json:"outputBytesPerDay,omitempty"` // likewise
	Subscriptions     *int   `json:"subscriptions,omitempty"`     // open concurrently
	PoolRunners       *int   `json:"poolRunners,omitempty"`       // pool sizes of all environments together
	MemoryMiB         *int64 `json:"memoryMiB,omitempty"`         // reserved by pools and held runners
	CPUMHz            *int64 `json:"cpuMHz,omitempty"`            // likewise
}

// Validate returns INVALID_INPUT for the first quota that is negative or too large. The field is
// the quota's name after prefix.
func (q Quotas) Validate(prefix string) error {
	const most = 1 << 50
	return cmp.Or(
		validateQuota(prefix+"runners", q.Runners, MaxQuota, "concurrently"),
		validateQuota(prefix+"waiting", q.Waiting, MaxQuota, "concurrently"),
		validateQuota(prefix+"executions", q.Executions, MaxQuota, "concurrently"),
		validateQuota(prefix+"claimsPerMinute", q.ClaimsPerMinute, MaxQuota, "a minute"),
		validateQuota(prefix+"subscriptions", q.Subscriptions, MaxQuota, "concurrently"),
		validateQuota(prefix+"poolRunners", q.PoolRunners, MaxQuota, "in all pools"),
		validateQuota(prefix+"cpuSecondsPerDay", q.CPUSecondsPerDay, most, "a day"),
		validateQuota(prefix+"outputBytesPerDay", q.OutputBytesPerDay, most, "a day"),
		validateQuota(prefix+"memoryMiB", q.MemoryMiB, most, "MiB"),
		validateQuota(prefix+"cpuMHz", q.CPUMHz, most, "MHz"),
	)
}

func validateQuota[N int | int64](field string, quota *N, most int64, unit string) error {
	if quota == nil {
		return nil
	}
	return Between(field, int64(*quota), 0, most, unit)
}

// MaxQuota bounds the quotas of concurrent objects and of claims per minute.
const MaxQuota = 1_000_000

// MaxHolderBytes bounds the name of a claim's holder.
const MaxHolderBytes = 200

// ValidateHolder returns INVALID_INPUT for a text that can't be the name of a claim's holder.
func ValidateHolder(holder string) error {
	if holder == "" || len(holder) > MaxHolderBytes || !utf8.ValidString(holder) || strings.ContainsFunc(holder, unicode.IsControl) {
		return Invalid("holder", "must be 1 to %d bytes of UTF-8 without control characters", MaxHolderBytes)
	}
	return nil
}
