package estimator

// boundaries[j] is floor(2^52 * (2^(j/64) - 1)): the largest mantissa of a
// float64 whose value in its octave is at most 2^(j/64). A value lies above the
// boundary when its mantissa is greater. The last entry lies above every mantissa.
var boundaries = [perOctave + 1]uint64{
	0x0000000000000, 0x02c9a3e778060, 0x059b0d3158574, 0x0874518759bc8,
	0x0b5586cf9890f, 0x0e3ec32d3d1a2, 0x11301d0125b50, 0x1429aaea92ddf,
	0x172b83c7d517a, 0x1a35beb6fcb75, 0x1d4873168b9aa, 0x2063b88628cd6,
	0x2387a6e756238, 0x26b4565e27cdd, 0x29e9df51fdee1, 0x2d285a6e4030b,
	0x306fe0a31b715, 0x33c08b26416ff, 0x371a7373aa9ca, 0x3a7db34e59ff6,
	0x3dea64c123422, 0x4160a21f72e29, 0x44e086061892d, 0x486a2b5c13cd0,
	0x4bfdad5362a27, 0x4f9b2769d2ca6, 0x5342b569d4f81, 0x56f4736b527da,
	0x5ab07dd485429, 0x5e76f15ad2148, 0x6247eb03a5584, 0x6623882552224,
	0x6a09e667f3bcc, 0x6dfb23c651a2e, 0x71f75e8ec5f73, 0x75feb564267c8,
	0x7a11473eb0186, 0x7e2f336cf4e62, 0x82589994cce12, 0x868d99b4492ec,
	0x8ace5422aa0db, 0x8f1ae99157736, 0x93737b0cdc5e4, 0x97d829fde4e4f,
	0x9c49182a3f090, 0xa0c667b5de564, 0xa5503b23e255c, 0xa9e6b5579fdbf,
	0xae89f995ad3ad, 0xb33a2b84f15fa, 0xb7f76f2fb5e46, 0xbcc1e904bc1d2,
	0xc199bdd85529c, 0xc67f12e57d14b, 0xcb720dcef9069, 0xd072d4a07897b,
	0xd5818dcfba487, 0xda9e603db3285, 0xdfc97337b9b5e, 0xe502ee78b3ff6,
	0xea4afa2a490d9, 0xefa1bee615a27, 0xf50765b6e4540, 0xfa7c1819e90d8,
	1 << 52,
}
