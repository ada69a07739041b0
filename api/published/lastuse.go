package published

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

const (
	// LastUseShards is the number of ConfigMaps that hold the last uses of all keys. The dispatcher may write these names only.
	LastUseShards = 64
	// lastUseBytes bounds the data of a ConfigMap, which may have 1 MiB with its metadata. The keys with the oldest uses are left out, so
	// that nothing is known of them.
	lastUseBytes = 1_000_000
	// LastUseStep is how exact last uses are: each API replica writes at most one for each digest in it, and one is published if it is
	// later by it.
	LastUseStep = 10 * time.Minute
	// MaxDigestUses is how many digests of an ApiKey have their last use: as many as a record accepts.
	MaxDigestUses = MaxPrevious + 1
)

// LastUseName is the name of the ConfigMap of a shard.
func LastUseName(shard int) string { return lastUsePrefix + strconv.Itoa(shard) }

// LastUseShard is the shard of a key id.
func LastUseShard(keyID string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(keyID))
	return int(hash.Sum32() % LastUseShards)
}

// DigestUses says when the digests of one ApiKey were last used, by the clock of Redis: "<DigestTag> <Unix seconds>" for each, the newest
// first, parted by spaces. Redis and the ConfigMap hold it as it is, because there may be a million.
type DigestUses string

// digestTagLength is in hexadecimal digits. They distinguish the digests of one ApiKey; two that are equal share their last use.
const digestTagLength = 8

// DigestTag stands for a digest among those of one ApiKey.
func DigestTag(digest apikey.Digest) string { return hex.EncodeToString(digest[:digestTagLength/2]) }

type digestUse struct {
	tag     string
	seconds int64
}

// list returns the uses; ok is false if the text is not of the form that DigestUses has.
func (u DigestUses) list() (uses []digestUse, ok bool) {
	text, _, _ := strings.Cut(string(u), "\t")
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return nil, false
	}
	for pair := range slices.Chunk(words, 2) {
		seconds, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil || seconds <= 0 || len(pair[0]) != digestTagLength || strings.Trim(pair[0], "0123456789abcdef") != "" {
			return nil, false
		}
		uses = append(uses, digestUse{pair[0], seconds})
	}
	return uses, true
}

// Valid reports whether the text has the form of DigestUses.
func (u DigestUses) Valid() bool {
	_, ok := u.list()
	return ok
}

// Last returns the last use of a digest; zero: none is known.
func (u DigestUses) Last(digest apikey.Digest) time.Time {
	uses, _ := u.list()
	tag := DigestTag(digest)
	for _, use := range uses {
		if use.tag == tag {
			return time.Unix(use.seconds, 0).UTC()
		}
	}
	return time.Time{}
}

// Latest returns the last use of any digest; zero: none is known.
func (u DigestUses) Latest() time.Time {
	uses, _ := u.list()
	if len(uses) == 0 {
		return time.Time{}
	}
	latest := slices.MaxFunc(uses, func(a, b digestUse) int { return cmp.Compare(a.seconds, b.seconds) })
	return time.Unix(latest.seconds, 0).UTC()
}

// CompleteSince returns since when a use of any digest is listed; zero: all uses are. If the list is full, older uses have left it.
func (u DigestUses) CompleteSince() time.Time {
	uses, _ := u.list()
	if len(uses) < MaxDigestUses {
		return time.Time{}
	}
	oldest := slices.MinFunc(uses, func(a, b digestUse) int { return cmp.Compare(a.seconds, b.seconds) })
	return time.Unix(oldest.seconds, 0).UTC()
}

// Merge returns the later use of each digest. changed: one of other's is later by step or more, or of a digest that u does not have.
func (u DigestUses) Merge(other DigestUses, step time.Duration) (merged DigestUses, changed bool) {
	if u == other {
		return u, false
	}
	mine, _ := u.list()
	theirs, _ := other.list()
	for _, use := range theirs {
		i := slices.IndexFunc(mine, func(m digestUse) bool { return m.tag == use.tag })
		switch {
		case i < 0:
			mine, changed = append(mine, use), true
		case use.seconds > mine[i].seconds:
			changed = changed || time.Duration(use.seconds-mine[i].seconds)*time.Second >= step
			mine[i].seconds = use.seconds
		}
	}
	slices.SortFunc(mine, func(a, b digestUse) int { return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.tag, b.tag)) })
	var text []byte
	for _, use := range mine[:min(len(mine), MaxDigestUses)] {
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = append(append(text, use.tag...), ' ')
		text = strconv.AppendInt(text, use.seconds, 10)
	}
	return DigestUses(text), changed && DigestUses(text) != u
}

// LastUses are those of one shard.
type LastUses struct {
	// ReadTime is when they were read from Redis, by its clock; zero: they were not. Later uses are not among them.
	ReadTime time.Time
	// RecordingSince is since when Redis has lost no use, by its clock. An earlier use may be missing.
	RecordingSince time.Time
	// Keys has each key that was read, by its id, also if no use of it is known. Of any other key nothing is known.
	Keys map[string]DigestUses
}

// lastUses is the wire format, with times in Unix seconds.
type lastUses struct {
	Version        int                   `json:"version"`
	ReadTime       int64                 `json:"readTime,omitempty"`
	RecordingSince int64                 `json:"recordingSince,omitempty"`
	Uses           map[string]DigestUses `json:"uses,omitempty"`
}

// EncodeLastUses returns the ConfigMap of a shard, in the credentials namespace. The operator creates it, the dispatcher updates it.
func EncodeLastUses(namespace string, shard int, uses LastUses) (*corev1.ConfigMap, error) {
	wire := lastUses{Version: recordVersion, ReadTime: unixSeconds(uses.ReadTime), RecordingSince: unixSeconds(uses.RecordingSince), Uses: fitting(uses.Keys)}
	data, err := json.Marshal(wire)
	if err != nil {
		return nil, invalid("encode last uses: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      LastUseName(shard),
			Labels:    map[string]string{Label: LabelLastUse},
		},
		Data: map[string]string{lastUseData: string(data)},
	}, nil
}

// fitting returns as many keys as a ConfigMap has room for, those with the latest uses.
func fitting(keys map[string]DigestUses) map[string]DigestUses {
	const quoted = len(`"":"",`)
	size := 0
	for keyID, uses := range keys {
		size += len(keyID) + len(uses) + quoted
	}
	if size <= lastUseBytes {
		return keys
	}
	type entry struct {
		keyID  string
		latest time.Time
	}
	byUse := make([]entry, 0, len(keys))
	for keyID, uses := range keys {
		byUse = append(byUse, entry{keyID, uses.Latest()})
	}
	slices.SortFunc(byUse, func(a, b entry) int { return cmp.Or(b.latest.Compare(a.latest), cmp.Compare(a.keyID, b.keyID)) })
	fit, size := make(map[string]DigestUses, len(keys)), 0
	for _, e := range byUse {
		if size += len(e.keyID) + len(keys[e.keyID]) + quoted; size > lastUseBytes {
			break
		}
		fit[e.keyID] = keys[e.keyID]
	}
	return fit
}

// DecodeLastUses returns what a shard has. Any error wraps ErrInvalid.
func DecodeLastUses(configMap *corev1.ConfigMap) (LastUses, error) {
	var wire lastUses
	if err := decode([]byte(configMap.Data[lastUseData]), &wire, &wire.Version); err != nil {
		return LastUses{}, err
	}
	for keyID, uses := range wire.Uses {
		if !ValidID(keyID) || !uses.Valid() {
			return LastUses{}, invalid("uses has an entry that is no key id with its uses")
		}
	}
	if wire.Uses == nil {
		wire.Uses = map[string]DigestUses{}
	}
	return LastUses{ReadTime: parseUnixSeconds(wire.ReadTime), RecordingSince: parseUnixSeconds(wire.RecordingSince), Keys: wire.Uses}, nil
}

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func parseUnixSeconds(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
