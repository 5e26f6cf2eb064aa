package runtime

import (
	"regexp"
	"time"
)

// A TenantID names a tenant: a group of callers that see and use only what is
// theirs. The zero value is the default tenant, so what was stored before there
// were tenants belongs to that.
type TenantID string

// DefaultTenant is the tenant of callers that name no other one.
const DefaultTenant TenantID = ""

// defaultTenantName is what people call DefaultTenant.
const defaultTenantName = "default"

// String returns the tenant's name as the API spells it.
func (id TenantID) String() string {
	if id == DefaultTenant {
		return defaultTenantName
	}
	return string(id)
}

// UnmarshalText reads what a person may have written by hand, as the API spells it.
func (id *TenantID) UnmarshalText(text []byte) error {
	if *id = TenantID(text); *id == defaultTenantName {
		*id = DefaultTenant
	}
	return nil
}

var tenantNames = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ParseTenant returns the tenant with a name, and INVALID_INPUT for field unless
// the name is 1 to 63 small letters, digits and hyphens that don't begin with a
// hyphen.
func ParseTenant(field, name string) (TenantID, error) {
	if name == defaultTenantName {
		return DefaultTenant, nil
	}
	if !tenantNames.MatchString(name) {
		return "", Invalid(field, "must be 1 to 63 small letters, digits and '-', not beginning with '-'")
	}
	return TenantID(name), nil
}

// A Tenant is what the server knows of one.
type Tenant struct {
	ID        TenantID  `json:"id"`
	Weight    int       `json:"weight"` // turns that its waiting claims get for each turn of a tenant of weight 1
	Quotas    Quotas    `json:"quotas"`
	CreatedAt time.Time `json:"createdAt"`
}

// Bounds of Tenant.Weight.
const (
	DefaultWeight = 1
	MaxWeight     = 1000
)

// Quotas bound what a tenant takes. A nil bounds nothing.
type Quotas struct {
	Runners           *int   `json:"runners,omitempty"`           // held at once
	Waiting           *int   `json:"waiting,omitempty"`           // claims that wait at once
	Executions        *int   `json:"executions,omitempty"`        // that haven't ended, at once
	ClaimsPerMinute   *int   `json:"claimsPerMinute,omitempty"`   // in any 60 seconds
	CPUSecondsPerDay  *int64 `json:"cpuSecondsPerDay,omitempty"`  // of executions that ended on a day (UTC)
	OutputBytesPerDay *int64 `json:"outputBytesPerDay,omitempty"` // likewise
	Subscriptions     *int   `json:"subscriptions,omitempty"`     // at once
}

// Validate returns INVALID_INPUT for the first quota, its name after prefix, that
// is below 0 or beyond what can be counted.
func (q Quotas) Validate(prefix string) error {
	const most = 1 << 50
	for _, of := range []struct {
		name  string
		value *int
		unit  string
	}{
		{"runners", q.Runners, "at once"}, {"waiting", q.Waiting, "at once"}, {"executions", q.Executions, "at once"},
		{"claimsPerMinute", q.ClaimsPerMinute, "a minute"}, {"subscriptions", q.Subscriptions, "at once"},
	} {
		if of.value != nil {
			if err := Between(prefix+of.name, int64(*of.value), 0, MaxQuota, of.unit); err != nil {
				return err
			}
		}
	}
	for _, of := range []struct {
		name  string
		value *int64
	}{{"cpuSecondsPerDay", q.CPUSecondsPerDay}, {"outputBytesPerDay", q.OutputBytesPerDay}} {
		if of.value != nil {
			if err := Between(prefix+of.name, *of.value, 0, most, "a day"); err != nil {
				return err
			}
		}
	}
	return nil
}

// MaxQuota bounds what is counted at once or a minute.
const MaxQuota = 1_000_000
