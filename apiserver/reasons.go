package apiserver

import (
	"errors"

	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// Why a request was answered 401. They label a metric, and callers are never told.
const (
	reasonNoKey            = "no_key"
	reasonMalformedKey     = "malformed_key"
	reasonUnknownKey       = "unknown_key"
	reasonUnusableKey      = "unusable_key" // disabled or expired
	reasonDeadKey          = "dead_key"     // rotated, says Redis
	reasonUnknownMerchant  = "unknown_merchant"
	reasonForeignAddress   = "foreign_address"
	reasonMalformedAddress = "malformed_address"
	reasonRailToken        = "rail_token"
)

func unauthorizedReasons() []string {
	return []string{
		reasonNoKey, reasonMalformedKey, reasonUnknownKey, reasonUnusableKey, reasonDeadKey,
		reasonUnknownMerchant, reasonForeignAddress, reasonMalformedAddress, reasonRailToken,
	}
}

// reasonOf names the cause of a 401 for the metric.
func reasonOf(err error) string {
	if refused, ok := errors.AsType[unauthorizedError](err); ok {
		return refused.reason
	}
	if errors.Is(err, authz.ErrUnauthenticated) {
		return reasonRailToken
	}
	return reasonDeadKey // the store's verdict
}
