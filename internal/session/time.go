package session

import "time"

// A caller's times are of these years. A number of seconds, read as milliseconds, is a time in 1970. Behind the last
// year, years have five digits, and Redis rounds the milliseconds.
const (
	firstYear = 2020
	lastYear  = 9999
)

// TimestampRule is the rule of a time in milliseconds, worded to follow the field's name.
const TimestampRule = "must be a Unix timestamp in milliseconds (not seconds) from 2020 on"

// MaxTimestamp is the last millisecond of lastYear.
const MaxTimestamp = 253_402_300_799_999

// ValidTime reports whether a caller may give the time.
func ValidTime(at time.Time) bool {
	year := at.UTC().Year()
	return year >= firstYear && year <= lastYear
}
