# A video server: many streams of active films are read at a rate, while a film is replaced now and then.
set $dir=/tmp
set $eventrate=96
set $filesize=64m
set $nthreads=48
set $numactivevids=16
set $numpassivevids=32
set $reuseit=false
set $readiosize=256k
set $writeiosize=1m
set $passvidsname=passivevids
set $actvidsname=activevids
set $repintval=10
eventgen rate=$eventrate
define fileset name=$actvidsname,path=$dir,size=$filesize,entries=$numactivevids,dirwidth=4,prealloc,paralloc
define fileset name=$passvidsname,path=$dir,size=$filesize,entries=$numpassivevids,dirwidth=20,prealloc=50,paralloc
define process name=writer1,instances=1 {
  thread name=replacer1,memsize=10m,instances=1 {
    flowop deletefile name=retire1,filesetname=$passvidsname
    flowop createfile name=add1,filesetname=$passvidsname,fd=1
    flowop writewholefile name=record1,fd=1,iosize=$writeiosize
    flowop closefile name=closenew1,fd=1
    flowop delay name=pause1,value=$repintval
  }
}
define process name=reader1,instances=1 {
  thread name=viewer1,memsize=10m,instances=$nthreads {
    flowop read name=play1,filesetname=$actvidsname,iosize=$readiosize
    flowop bwlimit name=pace1,target=play1
  }
}
run 60
