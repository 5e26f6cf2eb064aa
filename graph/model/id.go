package model

import (
	"encoding/json"
	"strconv"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/runtime"
)

// MarshalID writes an ID as MarshalString does.
func MarshalID(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalID reads an ID from a string or a whole number.
func UnmarshalID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return UnmarshalString(v)
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String(), nil
		}
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return "", runtime.Invalid("", "must be a string or a whole number")
}

// MarshalTenantID writes a tenant's name.
func MarshalTenantID(id runtime.TenantID) graphql.Marshaler { return MarshalString(id.String()) }

// UnmarshalTenantID reads a tenant's name.
func UnmarshalTenantID(v any) (runtime.TenantID, error) {
	name, err := UnmarshalString(v)
	if err != nil {
		return "", err
	}
	return runtime.ParseTenant("", name)
}
