package roomtest

import "strings"

// The messages to bodies that are no object.
const (
	NotAnObject   = "body must be one JSON object"
	NotJSON       = "body is not valid JSON"
	NotUTF8       = "body is not valid UTF-8"
	LoneSurrogate = "body has an unpaired surrogate escape"
	BodyTooLarge  = "body is larger than 16 KiB"
)

// UnknownIDs returns segments of a path, by what is wrong with them, that name no session: some are made from the id of one.
func UnknownIDs(id string) map[string]string {
	otherBucket := "00"
	if id[3:5] == otherBucket {
		otherBucket = "01"
	}
	return map[string]string{
		"never created":        "ps_aaaaaaaaaaaa000000000000000000",
		"another bucket":       "ps_" + otherBucket + id[5:],
		"no such bucket":       "ps_ff" + id[5:],
		"upper case merchant":  "ps_A" + id[4:],
		"shorter":              id[:28],
		"longer":               id + "0",
		"another label":        "px_" + id[3:],
		"a blank":              "%20",
		"NUL":                  id[:10] + "%00" + id[11:],
		"a slash":              id[:10] + "%2F" + id[11:],
		"dots":                 "%2e%2e",
		"a hash tag of Redis":  "%7Bb00m%7D:session:" + id,
		"a wildcard":           "*",
		"a line break":         id + "%0A",
		"invalid UTF-8":        "%ff%fe",
		"very long":            strings.Repeat("x", 8000),
		"an umlaut":            "ps_00ä",
		"an id in upper case":  strings.ToUpper(id),
		"an id with a comment": id + "%3b--",
	}
}
