package published

import "cmp"

// Order places what is known of one key. The later its current digest was issued, the newer; of one digest the higher
// revision is newer. A record that was put back has an older digest, whatever its revision became since.
type Order struct {
	// Issued is when the current digest was issued, in Unix milliseconds.
	Issued int64
	// Revision is that of the record.
	Revision int64
}

// Order returns the record's place among all that was published of its key.
func (r KeyRecord) Order() Order {
	return Order{Issued: max(r.Current.CreatedAt.UnixMilli(), 0), Revision: r.Revision}
}

// Compare is negative if o is older than other, positive if it is newer.
func (o Order) Compare(other Order) int {
	return cmp.Or(cmp.Compare(o.Issued, other.Issued), cmp.Compare(o.Revision, other.Revision))
}
