# A warehouse database with a set of files per table: random reads, block writers, a log, think times.
set $dir=/tmp
set $eventrate=0
set $iosize=2k
set $nthreads=20
set $ndbwriters=4
set $filesize=8m
set $thinktime=1
eventgen rate=$eventrate
define fileset name=warehouse,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=district,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=customer,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=history,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=neworder,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=orders,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=orderline,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=item,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=stock,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=undo,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=systemset,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=temp,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index1,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index2,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index3,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index4,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index5,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=rollback,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=logfile,path=$dir,size=$filesize,entries=1,dirwidth=1024,prealloc
define process name=lgwr1,instances=1 {
  thread name=lgwr1,memsize=1m {
    flowop write name=logwrite1,filesetname=logfile,iosize=256k,dsync
    flowop semblock name=logblock1,value=320,highwater=1000
  }
}
define process name=dbwr1,instances=$ndbwriters {
  thread name=dbwr1,memsize=1m {
    flowop aiowrite name=stockwrite1,filesetname=stock,iosize=$iosize,random,iters=10,opennext
    flowop aiowrite name=orderwrite1,filesetname=orderline,iosize=$iosize,random,iters=10,opennext
    flowop aiowait name=writerwait1
    flowop semblock name=writerblock1,value=100,highwater=2000
  }
}
define process name=terminal1,instances=1 {
  thread name=terminal1,memsize=1m,instances=$nthreads {
    flowop read name=read_warehouse1,filesetname=warehouse,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_district1,filesetname=district,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_customer1,filesetname=customer,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_history1,filesetname=history,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_neworder1,filesetname=neworder,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_orders1,filesetname=orders,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_orderline1,filesetname=orderline,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_item1,filesetname=item,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_stock1,filesetname=stock,iosize=$iosize,random,iters=2,opennext
    flowop hog name=compute1,value=20000
    flowop sempost name=wakelog1,value=1,target=logblock1,blocking
    flowop sempost name=wakewriters1,value=1,target=writerblock1,blocking
    flowop eventlimit name=limit1
  }
  thread name=operator1,memsize=1m,instances=1 {
    flowop delay name=think1,value=$thinktime
    flowop read name=audit1,filesetname=history,iosize=$iosize,random,opennext
  }
}
run 60
